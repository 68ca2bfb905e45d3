"""The list of rules and the pages about them say the same."""

from __future__ import annotations

import re
from pathlib import Path

from cpubound.advise.registry import list_rules

PAGES = Path(__file__).parents[2] / "docs" / "findings"


def documented() -> list[str]:
    pages = sorted(path for path in PAGES.glob("*.md") if path.name != "README.md")
    texts = [path.read_text(encoding="utf-8") for path in pages]
    return [code for text in texts for code in re.findall(r"^## (.+)$", text, re.MULTILINE)]


def test_each_code_is_documented_once_and_each_documented_code_exists() -> None:
    codes = {rule.code for rule in list_rules()}
    assert sorted(documented()) == sorted(codes)


def test_the_pages_link_to_sections_that_exist() -> None:
    for path in PAGES.glob("*.md"):
        text = path.read_text(encoding="utf-8")
        for page, _, section in re.findall(r"\]\((\w+\.md)(#([\w-]+))?\)", text):
            target = PAGES / page
            assert target.is_file(), f"{path.name} links to {page}"
            if section:
                assert f"\n## {section}\n" in target.read_text(encoding="utf-8")


def test_the_index_names_every_page() -> None:
    index = (PAGES / "README.md").read_text(encoding="utf-8")
    for path in PAGES.glob("*.md"):
        assert path.name == "README.md" or f"({path.name})" in index


def test_every_rule_is_a_line() -> None:
    rules = list_rules()
    assert len({(rule.code, rule.about) for rule in rules}) == len(rules)
    assert all(0 < len(rule.found_when) <= 80 and "\n" not in rule.found_when for rule in rules)


def test_the_kinds_of_trouble_that_people_report_have_codes() -> None:
    reported = [
        "quota-oversubscribed",
        "topology-mismatch",
        "hybrid-cores",
        "at-ceiling",
        "smt",
        "odd-thread-count",
        "numa-placement",
        "slow-memory",
        "page-size",
        "not-resident",
        "throttled",
        "busy-machine",
        "slow-build",
        "kernel-bound",
        "no-simd-kernel",
        "repack",
        "wait-policy",
        "kv-quant-on-cpu",
        "lookup-tables",
        "tied-output",
        "moe",
        "graph-bound",
        "sliding-window",
        "mla",
        "recurrent",
        "mislabelled",
        "truncated",
        "not-gguf",
        "split",
        "projector",
        "unknown-type",
        "impossible",
        "in-cache",
    ]
    assert set(reported) <= {rule.code for rule in list_rules()}
