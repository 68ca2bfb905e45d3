"""The kept runs pin the form and the published figures: what moves them shows here.

``tests/data/judged.json`` is written anew by ``python -m calibrate pooled --golden FILE``.
"""

from __future__ import annotations

from functools import cache

import kept
import msgspec
import pytest

from calibrate import kept_runs, pooled
from cpubound.profile.values import SCHEMA


@cache
def runs() -> list[kept_runs.KeptRun]:
    return kept_runs.read_runs([])


def test_every_kept_run_is_of_the_present_schema_and_names_its_cpu() -> None:
    assert len(runs()) >= 3
    for run in runs():
        assert run.profile.schema == SCHEMA
        assert run.profile.machine.cpu_identity is not None
        assert {cell.set for cell in run.cells} == set(kept_runs.SETS)


def test_the_figures_of_the_judged_set_are_the_published_ones() -> None:
    golden = msgspec.json.decode((kept.DATA / "judged.json").read_bytes())
    found = pooled.golden_figures(runs())
    assert found.keys() == golden.keys()
    for name, figures in golden.items():
        assert found[name] == pytest.approx(figures, abs=0.002), name


def test_the_page_of_accuracy_holds_those_figures() -> None:
    page = (kept.PROJECT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    golden = msgspec.json.decode((kept.DATA / "judged.json").read_bytes())
    for name in ("1 thread", "2 threads"):
        row = next(line for line in page.splitlines() if line.startswith(f"| {name} |"))
        assert f"{golden[name]['median_abs_error'] * 100:.1f} %" in row
        assert f"{golden[name]['inside'] * 100:.0f} %" in row
