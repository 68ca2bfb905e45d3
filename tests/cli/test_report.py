"""``report``: one page from a saved profile, never over a file unasked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from builders import standard_profile
from pages import observed

from cpubound.profile.file import save_profile
from cpubound.report.validation import validation_document

Invoke = Callable[..., tuple[int, str, str]]
MODEL = "llama-3.2-1b:Q4_0"


@pytest.fixture
def profile(tmp_path: Path) -> str:
    path = tmp_path / "profile.json"
    save_profile(standard_profile(), path)
    return str(path)


def test_it_writes_one_file_and_never_replaces_one_unasked(
    invoke: Invoke, profile: str, tmp_path: Path
) -> None:
    target = tmp_path / "page.html"
    arguments = ("report", MODEL, "--profile", profile, "--html", str(target))
    code, said, _ = invoke(*arguments)
    assert code == 0
    assert str(target) in said
    page = target.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "llama-3.2-1b Q4_0" in page
    target.write_text("mine")
    assert invoke(*arguments)[0] == 2
    assert target.read_text() == "mine"
    assert invoke(*arguments, "--force")[0] == 0
    assert {path.name for path in tmp_path.iterdir()} == {"profile.json", "page.html"}


def test_a_validation_that_was_written_is_drawn(
    invoke: Invoke, profile: str, tmp_path: Path
) -> None:
    written = tmp_path / "validation.json"
    found = standard_profile()
    document = validation_document(found, observed(found))
    written.write_bytes(msgspec.json.encode(document))
    target = tmp_path / "page.html"
    checked = ("--validation", str(written), "--html", str(target))
    assert invoke("report", MODEL, "--profile", profile, *checked)[0] == 0
    assert "Predicted against observed" in target.read_text(encoding="utf-8")


def test_what_is_no_validation_is_refused(invoke: Invoke, profile: str, tmp_path: Path) -> None:
    code, _, error = invoke(
        "report", MODEL, "--profile", profile, "--validation", profile,
        "--html", str(tmp_path / "page.html"),
    )  # fmt: skip
    assert code == 3
    assert "cpubound validate --json FILE" in error
    assert error.count("\n") == 1


def test_without_a_profile_the_line_says_what_to_do(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CPUBOUND_HOME", str(tmp_path / "home"))
    code, _, error = invoke("report", "--html", str(tmp_path / "page.html"))
    assert code == 3
    assert "cpubound calibrate" in error


def test_a_place_that_cannot_be_written_is_one_line(
    invoke: Invoke, profile: str, tmp_path: Path
) -> None:
    code, _, error = invoke(
        "report", MODEL, "--profile", profile, "--html", str(tmp_path / "none" / "page.html")
    )
    assert code == 4
    assert "choose another place" in error


@pytest.mark.parametrize("package", ["altair", "vl_convert", "jinja2"])
def test_without_a_package_that_draws_one_line_says_how_to_get_it(
    package: str, invoke: Invoke, profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    target = tmp_path / "page.html"
    code, _, error = invoke("report", MODEL, "--profile", profile, "--html", str(target))
    assert code == 4
    assert "pip install 'cpubound[report]'" in error
    assert not target.exists()
