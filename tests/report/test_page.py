"""The page of a report: one file that asks for nothing, whatever names stand in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from builders import GB, build_machine, build_profile
from pages import MODEL, build_contents, drawn_rows, full_profile, renamed

from cpubound.cli.report import gather_comparison
from cpubound.report.page.render import render_comparison, render_report, report_document
from cpubound.report.page.sections import MOST_DIFFERENCES

LARGEST_BYTES = 3_000_000
HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "{{ 7 * 7 }}{% raw %}",
    "<!--<script>",
    "]]>&lt;&#60;",
)


class Elements(HTMLParser):
    """Every element with its attributes, and the text of scripts by their id or place."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.is_script = False
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.is_script = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self.is_script = False

    def handle_data(self, data: str) -> None:
        if self.is_script:
            self.scripts.append((self.elements[-1][1], data))


@pytest.fixture(scope="module")
def page() -> str:
    return render_report(build_contents(target=20.0))


def json_of(page: str, name: str) -> Any:
    return json.loads(next(text for a, text in Elements(page).scripts if a.get("id") == name))


def test_the_page_is_small_and_asks_for_nothing(page: str) -> None:
    assert len(page.encode()) <= LARGEST_BYTES
    for tag, attributes in Elements(page).elements:
        assert tag not in {"iframe", "object", "embed", "base", "form", "img"}
        for name in ("src", "href", "action", "data", "poster"):
            assert (attributes.get(name) or "#").startswith(("#", "data:,")), (tag, attributes)
    style = page[page.index("<style>") : page.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_its_policy_runs_the_two_scripts_it_was_made_with_and_no_other(page: str) -> None:
    found = Elements(page)
    policy = next(a["content"] for _, a in found.elements if "http-equiv" in a) or ""
    run = [text for attributes, text in found.scripts if "type" not in attributes]
    allowed = re.findall(r"'sha256-([^']+)'", policy)
    assert allowed == [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in run
    ]
    assert policy.startswith("default-src 'none'")
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.split("style-src")[0]


def test_it_opens_with_the_answer_of_the_first_model(page: str) -> None:
    contents = build_contents(target=20.0)
    first = contents.summary[0]
    head = page[page.index("<h1") : page.index("<h2")]
    assert f"{first.model} {first.quant_label} on this Test CPU" in head
    assert "tok/s" in head
    assert "The largest file that gives 20.0 tok/s" in head


def test_each_chart_has_a_place_a_name_and_its_table(page: str) -> None:
    charts = json_of(page, "charts")["charts"]
    places = [a for _, a in Elements(page).elements if "data-chart" in a]
    assert {a["data-chart"] for a in places} == {*charts}
    assert len(places) == sum(len(chart["specs"]) for chart in charts.values())
    assert all(a.get("role") == "img" and a.get("aria-label") for a in places)
    assert page.count("<summary>") == len(charts)
    expected = {"scaling", "working-sets", "rates", "roofs", "contexts", "settings", "token-time",
                "memory", "prompts", "batches", "validation", "noise"}  # fmt: skip
    assert {*charts} == expected


def test_what_is_downloaded_is_the_document_of_the_page(page: str) -> None:
    document = json_of(page, "document")
    assert document["schema"] == "cpubound.report/1"
    made = msgspec.json.decode(msgspec.json.encode(report_document(build_contents(target=20.0))))
    assert document == made


def test_a_name_is_text_whatever_stands_in_it() -> None:
    contents = build_contents()
    name = " ".join(HOSTILE) + "x" * 400
    plain = render_report(renamed(contents, "plain"))
    page = render_report(renamed(contents, name))
    assert [tag for tag, _ in Elements(page).elements] == [
        tag for tag, _ in Elements(plain).elements
    ]
    assert json_of(page, "document")["models"][0]["model"] == name
    assert "49" not in page[page.index("<h1") : page.index("<p class")]


def test_numbers_without_an_end_are_null_in_json() -> None:
    contents = build_contents(is_checked=False)
    document = report_document(contents)
    document["target_tokens_per_s"] = float("inf")
    assert json.loads(msgspec.json.encode(document))["target_tokens_per_s"] is None


def test_a_profile_without_an_engine_gives_a_page_of_what_it_has() -> None:
    profile = build_profile({1: 20.0 * GB})
    page = render_report(build_contents(profile=profile, is_checked=False))
    charts = json_of(page, "charts")["charts"]
    assert {"scaling", "contexts", "token-time", "memory", "noise"} == {*charts}
    assert "upper bound" in page
    assert "Nothing was run to check them" in page


def test_extreme_rates_give_a_page() -> None:
    for rate in (1.0, 1e15):
        profile = build_profile({1: rate, 2: rate})
        page = render_report(build_contents(profile=profile, is_checked=False))
        assert "NaN" not in json.dumps(json_of(page, "charts"))
        assert "Infinity" not in json.dumps(json_of(page, "charts"))


def test_of_many_models_a_few_are_shown_in_full_and_all_in_one_table() -> None:
    names = [f"llama-3.2-1b:{t}" for t in ("Q4_0", "Q8_0", "Q4_K_M", "F16", "Q6_K", "Q2_K")] * 50
    page = render_report(build_contents(names, full_profile(), is_checked=False))
    assert len(page.encode()) <= LARGEST_BYTES
    assert page.count('<th scope="row"><bdi>llama-3.2-1b</bdi></th>') == len(names)
    assert page.count('id="speed-') == 2 * 4  # a section and its heading


def test_without_a_model_it_is_about_the_machine_and_well_known_models() -> None:
    page = render_report(build_contents((), is_checked=False))
    assert "llama-3.1-8b" in page
    assert 'id="speed' not in page
    assert 'id="machine"' in page


class TestComparison:
    A = full_profile()
    B = full_profile(warnings=("b",), machine=build_machine(8, cpu_model="Other CPU"))

    def page(self, models: tuple[str, ...] = (MODEL,)) -> str:
        return render_comparison(gather_comparison(models, None, (0, 4096), self.A, self.B))

    def test_differences_come_first_and_are_at_most_ten(self) -> None:
        page = self.page()
        first = page[page.index("<h2") : page.index('id="speed"')]
        assert "What differs" in first
        assert "Other CPU" in first
        assert 2 <= first.count("<tr>") <= MOST_DIFFERENCES + 1

    def test_both_are_drawn_over_each_other(self) -> None:
        charts = json_of(self.page(), "charts")["charts"]
        assert {*charts} == {"both-contexts-0", "both-read", "both-rates"}
        for chart in charts.values():
            rows = drawn_rows(chart["specs"][0])
            assert {row["name"] for row in rows if "name" in row} == {"A", "B"}

    def test_without_a_model_measured_rates_are_compared(self) -> None:
        page = self.page(())
        assert "measured rates of B over A" in page
        assert json_of(page, "document")["schema"] == "cpubound.comparison/1"
