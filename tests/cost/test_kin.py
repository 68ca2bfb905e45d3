"""A machine that was never seen borrows from its kin, and what is seen of it narrows the rest."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cpubound.cost.kin import Spread, condition, consider, covariance, learn, likeness
from cpubound.cost.kin_table import Kinship, make_points, make_rows
from cpubound.cost.machine_form import DecodeForm, PromptForm

DECODE, PROMPT = DecodeForm(), PromptForm()
OPERATIONS = 6e12  # of a prompt of a 7B model


def kinship(name: str, design: str = "zen5", family: str = "zen") -> Kinship:
    return Kinship(name=name, micro_architecture=design, family=family, architecture="x86_64")


def spread(parameters: int, *, name: float = 0.2) -> Spread:
    """Small differences inside a design, large ones between designs and families."""
    levels = np.zeros((parameters + 1, 4, 2))
    levels[:-1, :, 0] = np.array([0.3, 0.5, 0.5, name]) ** 2
    return Spread(
        levels=levels, server=np.full(parameters, 0.02**2), noise=np.array([1e-4, 1e-4, 1e-4])
    )


def prompt_kin(rates: dict[tuple[str, str, str], float], **differences: float):
    """Machines that do so many operations per second with each of eight threads."""
    machines = [kinship(*names) for names in rates]
    points = make_points([(machine, 8, 8.0, 5, 1.0) for machine in machines])
    rows = make_rows(
        PROMPT,
        [(i, (OPERATIONS, 0.0), 4e9, OPERATIONS / (8 * r)) for i, r in enumerate(rates.values())],
    )
    return learn(PROMPT, spread(2, **differences), points, rows)


def ask(kin, machine: Kinship, threads: int = 8, seconds: float | None = None):
    points = make_points([(machine, threads, float(threads), 1, 1.0)])
    asked = [(0, (OPERATIONS, 0.0), 4e9, None), (0, (OPERATIONS, 0.0), 8e9, seconds)]
    mean, variance = consider(kin, points, make_rows(kin.form, asked), np.zeros(2))
    return math.exp(mean[0]), math.sqrt(variance[0])


FAST, SLOW = ("A", "zen5", "zen"), ("B", "zen2", "zen")
RATES = {FAST: 90e9, SLOW: 40e9, ("C", "ice_lake_server", "core server"): 60e9}


def test_an_unseen_cpu_does_what_its_micro_architecture_does() -> None:
    kin = prompt_kin(RATES)
    seconds, _ = ask(kin, kinship("D", "zen5"))
    assert seconds == pytest.approx(OPERATIONS / (8 * 90e9), rel=0.1)
    seconds, _ = ask(kin, kinship("D", "zen2"))
    assert seconds == pytest.approx(OPERATIONS / (8 * 40e9), rel=0.1)


def test_the_further_away_the_nearest_kin_the_less_is_known() -> None:
    kin = prompt_kin(RATES)
    errors = [
        ask(kin, kinship("A"))[1],
        ask(kin, kinship("D", "zen5"))[1],
        ask(kin, kinship("D", "zen9"))[1],
        ask(kin, kinship("D", "unheard", "of"))[1],
    ]
    assert errors == sorted(errors)
    assert errors[-1] > 1.5 * errors[1]


def test_empty_labels_are_nobodys_kin() -> None:
    points = make_points([(kinship("", "", ""), 8, 8.0, 1, 1.0)] * 2)
    levels = np.ones((4, 2))
    assert covariance(levels, points, points) == pytest.approx(np.full((2, 2), 2.0))


def test_a_row_of_a_machine_narrows_another_model_on_it() -> None:
    kin = prompt_kin(RATES)
    before, wide = ask(kin, kinship("D", "zen9"))
    after, narrow = ask(kin, kinship("D", "zen9"), seconds=OPERATIONS / (8 * 75e9))
    assert after == pytest.approx(OPERATIONS / (8 * 75e9), rel=0.05)
    assert narrow < wide / 3
    assert abs(before / after - 1) > 0.05


def test_a_cpu_far_from_its_kin_counts_for_itself_once_it_is_seen() -> None:
    # A fifth of what its design does: one row must do.
    kin = prompt_kin(RATES)
    seconds, _ = ask(kin, kinship("D", "zen5"), seconds=OPERATIONS / (8 * 18e9))
    assert seconds == pytest.approx(OPERATIONS / (8 * 18e9), rel=0.1)


def test_nearby_thread_counts_have_more_in_common() -> None:
    alike = likeness(np.log2([1.0, 2.0, 64.0]), np.log2([1.0]), scale=2.0, own_share=0.0)[:, 0]
    assert alike[0] == 1 and alike[0] > alike[1] > alike[2]


def test_models_of_other_sizes_share_no_more_than_the_smooth_part() -> None:
    alike = likeness(np.array([0.0, 0.0, 1e-6]), np.array([0.0]), own_share=0.3)[:, 0]
    assert alike[:2] == pytest.approx([1.0, 1.0])
    assert alike[2] == pytest.approx(0.7)


@pytest.mark.parametrize("form", [DECODE, PROMPT], ids=["decode", "prompt"])
def test_the_derivatives_of_a_form_are_those_of_its_seconds(form) -> None:
    threads = np.array([6.0])
    amounts = np.array([[4e9, 32.0, 1.4e6, 1.1]]) if form is DECODE else np.array([[6e12, 32.0]])
    at = form.usual(threads, threads)
    value, slopes = form.log_seconds(at, threads, amounts)
    for place in range(len(form.parameters)):
        moved = at.copy()
        moved[0, place] += 1e-6
        change = form.log_seconds(moved, threads, amounts)[0] - value
        assert change[0] / 1e-6 == pytest.approx(slopes[0, place], abs=1e-5)


def test_bytes_pass_at_the_law_of_a_core_and_the_memory() -> None:
    # 2 threads of 10 GB/s below a memory of 20 GB/s: 20 / 2^(1/3) GB/s, so 4 GB take 252 ms.
    at = np.log([[10e9, 20e9, 1e-12, 1e-15, 1.0]])
    value, _ = DECODE.log_seconds(at, np.array([2.0]), np.array([[4e9, 32.0, 1e6, 1.0]]))
    assert math.exp(value[0]) == pytest.approx(0.2 * 2 ** (1 / 3), rel=1e-4)


def test_a_read_bandwidth_moves_what_memory_sets() -> None:
    machine = kinship("A")
    points = make_points([(machine, 8, 8.0, 3, 1.0)])
    amounts = (4e9, 32.0, 1.4e6, 1.0)
    kin = learn(DECODE, spread(5), points, make_rows(DECODE, [(0, amounts, 4e9, 0.1)], [(0, 45e9)]))
    mine = make_points([(kinship("B"), 8, 8.0, 1, 1.0)])
    seconds = []
    for rate in (20e9, 45e9, 90e9):
        rows = make_rows(DECODE, [(0, amounts, 4e9, None)], [(0, rate)])
        seconds.append(consider(kin, mine, rows, np.zeros(2))[0][0])
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] - seconds[-1] > 0.2


def test_a_row_that_is_far_off_counts_less_than_rows_that_agree() -> None:
    kin = prompt_kin(RATES)
    points = make_points([(kinship("D", "zen9"), 8, 8.0, 1, 1.0)])
    good, bad = OPERATIONS / (8 * 70e9), OPERATIONS / (8 * 7e9)
    sizes, seconds = (1e9, 2e9, 4e9, 8e9, 16e9), (good, good, bad, good, None)
    steps = [(0, (OPERATIONS, 0.0), n, s) for n, s in zip(sizes, seconds, strict=True)]
    rows = make_rows(PROMPT, steps)
    belief = kin.believe(points, rows.log_bytes, rows.point)
    known = np.isfinite(rows.log_value)
    mean, _, _ = condition(PROMPT, points, belief, rows, known, np.full(5, 1e-4))
    assert math.exp(mean[-1]) == pytest.approx(good, rel=0.2)


def test_points_may_be_taken_apart() -> None:
    kin = prompt_kin(RATES)
    chosen = kin.points.take(kin.points.family == "zen")
    assert list(chosen.name) == ["A", "B"]
    assert replace(chosen, scale=np.array([1.0, 2.0])).scale[1] == 2
