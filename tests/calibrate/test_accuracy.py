"""calibrate.accuracy and calibrate.ablation: what they say of cells that were observed."""

from __future__ import annotations

import msgspec
import pytest
from builders import GB, build_engine, build_profile
from fakes import FakeRunner
from observed import PROFILE, cell, observe, probe

from calibrate import ablation, accuracy
from cpubound.cost.rates import expert_rate


def judged(seconds: float, kernel_tokens_per_s: float = 10.0) -> accuracy.JudgedCell:
    """A cell predicted at 20 tok/s that took so many seconds a token."""
    found = observe([cell(2)], FakeRunner(seconds_per_step=lambda s: seconds)).cells[0]
    kernel = msgspec.structs.replace(
        found.prediction,
        tokens_per_s=kernel_tokens_per_s,
        low=kernel_tokens_per_s * 0.8,
        high=kernel_tokens_per_s * 1.2,
    )
    return accuracy.JudgedCell(cell=found, kernel=kernel)


def form(name: str) -> ablation.Form:
    return next(form for form in ablation.FORMS if form.name.startswith(name))


def test_a_repetition_is_as_far_from_the_next_as_what_was_observed() -> None:
    first, second = [judged(0.05), judged(0.1)], [judged(0.06), judged(0.12)]
    assert accuracy.repetition_distance([first, second]) == pytest.approx(0.2)


def test_the_summary_holds_the_errors_of_all_three_bases() -> None:
    text = accuracy.summary_text([judged(0.055, kernel_tokens_per_s=20.0)])
    assert "median |error| 10.0 %" in text
    assert "bias +10.0 %" in text
    # 20 tok/s of own kernels and 30 of bytes over bandwidth, beside 1 / 0.055 observed.
    assert "own kernels alone 10.0 %, bytes over bandwidth 65.0 %" in text
    # Predicted 20 (16 … 24) by our kernels: 18.2 lies inside, 25 and 10 do not.
    seconds = (0.055, 0.04, 0.1)
    text = accuracy.summary_text([judged(s, kernel_tokens_per_s=20.0) for s in seconds])
    assert "own kernels' interval holds 1 (33 %), median width 40 %" in text


def test_every_judged_cell_is_one_row_under_its_columns() -> None:
    table = accuracy.judged_table([judged(0.05), judged(0.1)])
    assert [len(row) for row in table.rows] == [len(table.columns)] * 2
    inside = table.columns.index("inside")
    assert [row[inside] for row in table.rows] == ["yes", "no"]
    assert table.rows[1][table.columns.index("own kernels")] == "+0 %"


def test_errors_come_in_the_order_of_models_and_settings() -> None:
    groups = [accuracy.Group(models=("smollm2-135m:Q4_0", "smollm2-360m:Q4_0"), threads=(1, 2))]
    exact = ablation.errors_of(PROFILE, groups, [1.0] * 4)
    predicted = [error + 1 for error in exact]
    assert predicted[0] > predicted[2]
    assert predicted[0] < predicted[1]
    assert ablation.errors_of(PROFILE, groups, predicted) == pytest.approx([0.0] * 4)


def test_the_table_of_forms_holds_the_median_and_the_tail_of_each() -> None:
    table = ablation.ablation_table({"one": [-0.1, 0.2, 0.3], "none": []})
    assert table.rows == (("one", "3", "20.0 %", "29.0 %", "+20.0 %"),)


def test_experts_as_dense_matrices_have_no_rate_of_their_own() -> None:
    runs = [
        probe("a", 0.0101),
        probe("b", 0.0201, matrices=(("Q4_0", 1024, 2 * 10**8),)),
        probe("c", 0.0301, experts=(("Q4_0", 1024, 10**8),), expert_layers=1),
        probe("d", 0.0501, experts=(("Q4_0", 1024, 2 * 10**8),), expert_layers=1),
    ]
    engine = msgspec.structs.replace(build_engine({"Q4_0": {1: 1.0 * GB}}), probes=tuple(runs))
    profile = build_profile({1: 30.0 * GB}, engine)
    whole, dense = (
        ablation.refit(profile, form(name)).engine for name in ("as it is", "experts at the rate")
    )
    assert whole is not None
    assert dense is not None
    slow = expert_rate(whole, "Q4_0", 1024, 1)
    assert slow is not None
    assert slow.bytes_per_s == pytest.approx(5.0 * GB, rel=0.1)
    assert slow.assumption is None
    assert {row.kind for row in dense.rates} == {"matmul"}


def test_attention_at_read_bandwidth_knows_neither_probes_nor_rates_of_attention() -> None:
    kv = probe("kv64-9x256", 0.03, kv_bytes=10**8, head_dim=64)
    engine = msgspec.structs.replace(
        build_engine({"Q4_0": {1: 1.0 * GB}}), probes=(probe("a", 0.01), probe("b", 0.01), kv)
    )
    profile = build_profile({1: 30.0 * GB}, engine)
    assert profile.engine is not None
    with_it = ablation.refit(profile, form("as it is")).engine
    without = ablation.refit(profile, form("attention at read")).engine
    assert with_it is not None
    assert without is not None
    assert with_it.attention
    assert without.attention == ()
    assert "kv64-9x256" not in {run.probe for run in without.probes}
