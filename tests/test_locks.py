"""The lock files pin what pyproject.toml asks for, each line with hashes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cpubound.package_data import parse_toml

ROOT = Path(__file__).resolve().parents[1]
PROJECT = parse_toml((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def normal_name(requirement: str) -> str:
    """As PEP 503 writes it."""
    found = re.match(r"[\w.-]+", requirement)
    assert found, requirement
    return re.sub(r"[-_.]+", "-", found.group()).lower()


def pinned(file: str) -> dict[str, str]:
    """Return the lines of a lock file by package, each with its hashes."""
    text = (ROOT / "locks" / file).read_text(encoding="utf-8").replace("\\\n", " ")
    return {normal_name(line): line for line in text.splitlines()}


def wanted(*, of_ci: bool) -> list[str]:
    project = PROJECT["project"]
    rows = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        rows += extra
    if of_ci:
        for group in PROJECT["dependency-groups"].values():
            rows += group
    return [normal_name(row) for row in rows]


@pytest.mark.parametrize("file", ["runtime.txt", "ci.txt"])
def test_every_dependency_is_pinned_with_hashes(file: str) -> None:
    lines = pinned(file)
    assert set(wanted(of_ci=file == "ci.txt")) <= lines.keys()
    for line in lines.values():
        assert re.match(r"[\w.-]+==[\w.]+ ", line), line
        assert "--hash=sha256:" in line, line


def test_what_users_install_is_what_ci_tests() -> None:
    of_ci = pinned("ci.txt")
    for name, line in pinned("runtime.txt").items():
        assert line.split()[0] == of_ci[name].split()[0]


def test_ci_builds_with_the_tools_that_the_build_system_names() -> None:
    groups = PROJECT["dependency-groups"]
    assert groups["build"] == PROJECT["build-system"]["requires"]


def test_the_lock_has_the_engine_that_the_makefile_names() -> None:
    engine = re.search(r"^ENGINE = (\S+)$", MAKEFILE, re.MULTILINE)
    assert engine
    assert pinned("ci.txt")["llama-cpp-python"].split()[0] == engine.group(1)
