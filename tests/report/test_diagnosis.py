"""The screen of a diagnosis: the answer first, and nothing that contradicts it."""

from __future__ import annotations

import re

import pytest
from builders import build_machine
from runs import GB, build_case, case_of

from cpubound.advise.case import Case
from cpubound.advise.diagnose import diagnose_published, diagnose_run
from cpubound.report.diagnosis import diagnosis_text, headline
from cpubound.theory.presets import find_preset


def codes(case: Case) -> set[str]:
    return {finding.code for finding in diagnose_run(case).findings}


def test_one_cause_stands_with_its_cost_and_the_setting_that_mends_it() -> None:
    case = build_case(observed=4.2, threads=8, predicted={1: 6.0, 2: 10.1})
    assert (
        headline(diagnose_run(case))
        == "4.20 of 10.1 tok/s: 8 threads but only 2 CPUs to run them → use -t 2, about 10.1"
    )


def test_the_headline_is_the_first_line_of_the_screen() -> None:
    diagnosis = diagnose_run(build_case(observed=4.2, threads=8, predicted={1: 6.0, 2: 10.1}))
    assert diagnosis_text(diagnosis).splitlines()[0] == headline(diagnosis)


@pytest.mark.parametrize(
    ("observed", "words"),
    [
        (10.0, "as expected"),
        (8.8, "may be chance"),
        (14.0, "faster than"),
        (64.0, "impossible here"),
    ],
)
def test_a_rate_without_a_cause_is_answered_too(observed: float, words: str) -> None:
    assert words in headline(diagnose_run(build_case(observed=observed, predicted={4: 10.0})))


def test_what_there_is_nothing_to_do_about_is_shown_on_demand() -> None:
    diagnosis = diagnose_run(build_case(model="llama-3.2-1b:Q4_0", observed=10.0))
    assert "tied-output" in {finding.code for finding in diagnosis.findings}
    assert "tied-output" not in diagnosis_text(diagnosis)
    assert "With -v: 1 fact " in diagnosis_text(diagnosis)
    assert "tied-output" in diagnosis_text(diagnosis, verbose=True)


def test_causes_stand_by_their_cost() -> None:
    case = build_case(observed=2.0, threads=8, predicted={1: 6.0, 2: 10.0}, features=("FMA",))
    costs = [
        f.cost_tokens_per_s or 0.0 for f in diagnose_run(case).findings if f.severity == "warning"
    ]
    assert costs == sorted(costs, reverse=True)


def test_no_ceiling_is_reached_at_half_of_it() -> None:
    near = {"threads": 4, "predicted": {2: 9.9, 4: 10.0}, "bandwidth": {2: 43 * GB, 4: 43 * GB}}
    assert "at-ceiling" in codes(build_case(observed=9.9, **near))  # type: ignore[arg-type]
    assert "at-ceiling" not in codes(build_case(observed=4.9, **near))  # type: ignore[arg-type]


def test_an_impossible_rate_is_not_called_faster_too() -> None:
    found = codes(build_case(observed=90.0, predicted={4: 10.0}))
    assert "impossible" in found
    assert "above-interval" not in found


def test_what_changed_since_calibration_is_the_cause_and_nothing_is_unexplained() -> None:
    then = build_case(observed=5.0, predicted={4: 10.0})
    assert "unexplained" in codes(then)
    now = build_case(
        observed=5.0, predicted={4: 10.0}, machine_now=build_machine(4, governor="powersave")
    )
    found = codes(now)
    assert "slow-governor" in found
    assert "unexplained" not in found


@pytest.mark.parametrize(("observed", "is_found"), [(0.0256, True), (8.0, False)])
def test_a_rate_far_below_a_named_machines_peak_is_not_memory(
    observed: float, is_found: bool
) -> None:
    case = case_of("llama-3.2-1b:Q8_0")
    diagnosis = diagnose_published(case, observed, find_preset("ddr4-2666-2ch"))
    assert ("far-below-peak" in {f.code for f in diagnosis.findings}) == is_found
    if is_found:
        assert re.match(r"0\.0256 of \d+.* tok/s: not memory → ", headline(diagnosis))
