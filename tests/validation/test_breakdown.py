"""cpubound.validation.breakdown: parts of a token corrected for looks, with times known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from builders import GB, build_engine, build_profile, build_traffic
from fakes import FakeRunner

from cpubound.cost.values import PartPrediction
from cpubound.engine.values import PartTimes, RunSettings
from cpubound.model.values import WeightRead
from cpubound.report.breakdown import (
    breakdown_document,
    breakdown_heading,
    breakdown_notes,
    breakdown_rows,
    breakdown_table,
)
from cpubound.setting import Setting
from cpubound.validation.breakdown import (
    MAX_TOKENS,
    MIN_TOKENS,
    ROUNDS,
    Breakdown,
    Round,
    run_rounds,
    take_apart,
    tokens_per_round,
    tokens_within,
)

LOOK_S = 3e-6
TRUE_S = {"attention_projections": 2e-3, "attention": 1e-3, "ffn": 5e-3, "norm": 1e-4}
OUTSIDE_S = 4e-4
TOKEN_S = sum(TRUE_S.values()) + OUTSIDE_S
LOOKS = {"attention_projections": 60, "attention": 30, "ffn": 30, "norm": 61}
MORE_LOOKS = {"attention_projections": 200, "attention": 90, "ffn": 150, "norm": 61}
SETTINGS = RunSettings(model_path="m.gguf", setting=Setting(threads=2, flash_attn=False))
TRAFFIC = replace(
    build_traffic({}, kv_bytes=5 * 10**6),
    weights=tuple(
        WeightRead(
            role=role, kind="matmul", type="Q4_0", rows=1, columns=1, count=1, n_bytes=n_bytes
        )
        for role, n_bytes in (("attention", 4 * 10**7), ("ffn", 10**8))
    ),
)


@dataclass(kw_only=True)
class FakePartTimer(FakeRunner):
    """A runner whose looks cost ``LOOK_S`` each."""

    asked: list[tuple[RunSettings, bool]] = field(default_factory=list)

    def time_parts(self, settings: RunSettings, *, by_operator: bool = False) -> PartTimes:
        self.asked.append((settings, by_operator))
        return part_times(MORE_LOOKS if by_operator else LOOKS, settings.tokens)


def part_times(looks: Mapping[str, int], tokens: int = 4, slower: float = 1.0) -> PartTimes:
    return PartTimes(
        looks=dict(looks),
        seconds={p: (s * slower + looks[p] * LOOK_S,) * tokens for p, s in TRUE_S.items()},
        outside_s=(OUTSIDE_S * slower,) * tokens,
    )


def ideal_rounds(drift: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0)) -> list[Round]:
    return [
        Round(
            unobserved_s=(TOKEN_S * slower,) * 4,
            by_part=part_times(LOOKS, slower=slower),
            by_operator=part_times(MORE_LOOKS, slower=slower),
        )
        for slower in drift
    ]


def take(rounds: list[Round], **predicted_s: float) -> Breakdown:
    predicted = {
        part: PartPrediction(seconds=s, low=0.9 * s, high=1.1 * s)
        for part, s in predicted_s.items()
    }
    return take_apart(TRAFFIC, rounds, predicted, setting=Setting(threads=2), engine="fake 1")


def seconds_of(breakdown: Breakdown) -> dict[str, float]:
    return {cost.part: cost.seconds for cost in breakdown.parts}


def test_the_cost_of_a_look_is_found_and_taken_off() -> None:
    found = take(ideal_rounds())
    assert found.looking.look_s == pytest.approx(LOOK_S)
    assert found.looking.looks == sum(LOOKS.values())
    assert found.looking.slowdown == pytest.approx(1 + 181 * LOOK_S / TOKEN_S)
    assert found.looking.correction == pytest.approx(1)
    expected = {**TRUE_S, "rest": OUTSIDE_S}
    assert seconds_of(found) == pytest.approx(expected)


def test_the_parts_add_up_to_an_unobserved_token() -> None:
    found = take(ideal_rounds((1.0, 1.3, 0.9, 1.1, 2.0)))
    assert sum(seconds_of(found).values()) == pytest.approx(found.seconds_per_token)
    assert sum(cost.share for cost in found.parts) == pytest.approx(1)


def test_shares_do_not_move_with_drift_between_rounds() -> None:
    quiet, changing = take(ideal_rounds()), take(ideal_rounds((1.0, 1.9, 1.0, 1.4, 1.0)))
    for a, b in zip(quiet.parts, changing.parts, strict=True):
        assert a.share == pytest.approx(b.share, abs=0.005)


def test_what_looks_do_not_explain_shows_in_the_correction() -> None:
    rounds = [replace(r, unobserved_s=(0.9 * TOKEN_S,) * 4) for r in ideal_rounds()]
    found = take(rounds)
    assert found.looking.correction == pytest.approx(0.9)
    assert seconds_of(found)["ffn"] == pytest.approx(0.9 * TRUE_S["ffn"])


def test_looks_never_cost_less_than_nothing() -> None:
    quick = part_times(MORE_LOOKS, slower=0.5)
    rounds = [replace(r, by_operator=quick) for r in ideal_rounds()]
    assert take(rounds).looking.look_s == 0


def test_a_graph_that_cannot_be_cut_finer_gives_no_cost_of_a_look() -> None:
    rounds = [replace(r, by_operator=r.by_part) for r in ideal_rounds()]
    assert take(rounds).looking.look_s == 0


def test_rates_are_bytes_over_the_corrected_time() -> None:
    by_part = {cost.part: cost for cost in take(ideal_rounds()).parts}
    assert by_part["ffn"].bytes_per_s == pytest.approx(1e8 / 5e-3)
    assert by_part["attention"].n_bytes == TRAFFIC.kv_touched_bytes
    assert by_part["norm"].bytes_per_s is None


def test_a_part_beyond_its_interval_is_slow() -> None:
    found = take(ideal_rounds(), ffn=4e-3, attention_projections=1.9e-3, attention=1e-3)
    assert found.slow_parts == ("ffn",)
    (ffn,) = [cost for cost in found.parts if cost.part == "ffn"]
    assert ffn.ratio == pytest.approx(1.25)
    assert ffn.predicted_high_s == pytest.approx(4.4e-3)


def test_the_costliest_slow_part_comes_first() -> None:
    found = take(ideal_rounds(), attention=5e-4, ffn=3e-3)
    assert found.slow_parts == ("ffn", "attention")


def test_a_slow_part_that_hardly_costs_is_not_named() -> None:
    assert take(ideal_rounds(), norm=1e-5).slow_parts == ()


def test_a_part_inside_its_interval_is_not_slow() -> None:
    assert take(ideal_rounds(), ffn=4.6e-3).slow_parts == ()


def test_without_a_prediction_nothing_is_slow() -> None:
    found = take(ideal_rounds())
    assert found.slow_parts == ()
    assert all(cost.predicted_s is None and cost.ratio is None for cost in found.parts)


def test_the_three_ways_are_run_in_every_round() -> None:
    runner = FakePartTimer(seconds_per_step=lambda _: TOKEN_S)
    done: list[float] = []
    rounds = run_rounds(
        runner, SETTINGS, tokens=40, progress=lambda _, share: done.append(share), seed=1
    )
    assert len(rounds) == ROUNDS
    assert done[-1] == 1
    assert [by_operator for _, by_operator in runner.asked].count(True) == ROUNDS
    assert len(runner.asked) == 2 * ROUNDS
    assert {s.tokens for s, _ in runner.asked} == {5}
    assert take(list(rounds)).tokens == 40


def test_the_order_of_the_ways_differs_between_rounds() -> None:
    runner = FakePartTimer(seconds_per_step=lambda _: TOKEN_S)
    run_rounds(runner, SETTINGS, tokens=16, progress=lambda *_: None, seed=3)
    first = [by_operator for _, by_operator in runner.asked[::2]]
    assert len(set(first)) == 2


@pytest.mark.parametrize(
    ("seconds_per_token", "tokens"), [(1e-6, MAX_TOKENS), (0.1, 67), (30.0, MIN_TOKENS)]
)
def test_tokens_fit_the_budget_within_bounds(seconds_per_token: float, tokens: int) -> None:
    assert tokens_within(20.0, seconds_per_token) == tokens


def test_a_round_has_two_tokens_at_least() -> None:
    assert tokens_per_round(8) == 2
    assert tokens_per_round(65) == 9


class TestReport:
    def test_the_document_has_its_fields(self) -> None:
        document = breakdown_document(None, take(ideal_rounds(), ffn=4e-3))
        assert document["schema"] == "cpubound.breakdown/1"
        assert document["profile"] is None
        assert document["slow_parts"] == ["ffn"]
        assert document["tokens_per_s"] == pytest.approx(1 / TOKEN_S)
        assert {"look_s", "look_error_s", "slowdown", "correction", "correction_error"} < set(
            document["looking"]
        )
        assert [part["part"] for part in document["parts"]][:2] == [
            "attention_projections",
            "attention",
        ]

    def test_the_profile_is_named(self) -> None:
        profile = build_profile({2: 40 * GB}, build_engine({"Q4_0": {2: GB}}))
        document = breakdown_document(profile, take(ideal_rounds()))
        assert document["profile"]["engine"] == "fake 1"

    def test_the_costliest_part_is_the_first_row_and_a_sum_the_last(self) -> None:
        table = breakdown_table(take(ideal_rounds(), ffn=4e-3))
        assert table.rows[0][0] == "FFN"
        assert table.rows[0][2:] == (
            "5.00 ± 0.000",
            "58.8 %",
            "20.0 GB/s",
            "4.00 [3.60, 4.40]",
            "1.25",
            "slow",
        )
        assert table.rows[-1][0] == "together"
        assert table.rows[-1][2] == "8.50"

    def test_the_slow_part_is_named_with_both_times(self) -> None:
        notes = breakdown_notes(take(ideal_rounds(), ffn=4e-3), has_profile=True)
        assert "Slower than it should be: FFN, 5.00 ± 0.000 ms where 4.00" in notes
        assert "3.0 ± 0.0 µs an observation" in notes
        assert "scaled by 1.000 ± 0.000" in notes

    def test_nothing_slow_is_said_too(self) -> None:
        notes = breakdown_notes(take(ideal_rounds(), ffn=5e-3), has_profile=True)
        assert "No part is slower" in notes

    def test_without_a_profile_the_notes_say_how_to_get_one(self) -> None:
        notes = breakdown_notes(take(ideal_rounds()), has_profile=False)
        assert "cpubound calibrate" in notes

    def test_when_all_is_slow_the_machine_is_suspected(self) -> None:
        slow = take(ideal_rounds(), ffn=3e-3, attention_projections=1e-3, attention=5e-4)
        assert "Every part is slow" in breakdown_notes(slow, has_profile=True)

    def test_the_heading_says_what_ran(self) -> None:
        heading = breakdown_heading(take(ideal_rounds()))
        assert "2 threads, empty context, flash-attention" in heading
        assert "118 tok/s, 8.50 ms a token" in heading

    def test_csv_has_plain_numbers(self) -> None:
        rows = breakdown_rows(take(ideal_rounds()))
        (ffn,) = [dict(zip(rows.columns, r, strict=True)) for r in rows.rows if r[0] == "ffn"]
        expected: dict[str, Any] = {"n_bytes": "100000000", "seconds": "0.005", "predicted_s": ""}
        assert expected.items() <= ffn.items()
        assert ffn["is_slow"] == "no"
