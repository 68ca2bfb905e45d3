"""cpubound.cost.engine_rates: from kept probe runs to tables, one for each thread count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from observed import probe

from cpubound import stats
from cpubound.cost.engine_rates import derive_tables
from cpubound.profile.values import EngineCalibration, ProbeRun

TRUE = {"bytes:Q4_0": 1 / 20e9, "rows:Q4_0": 5e-9, "product": 6e-6, "token": 1e-4}
SHAPES = ((4e7, 2e4, 8), (4e7, 6e4, 60), (4e7, 2e5, 150), (2e6, 5e3, 8), (2e8, 1e5, 30))


def amounts(n_bytes: float, rows: float, products: float, name: str = "Q4_0") -> dict[str, float]:
    return {f"bytes:{name}": n_bytes, f"rows:{name}": rows, "product": products, "token": 1.0}


def seconds_of(terms: Mapping[str, float], threads: int = 1) -> float:
    """More threads share the bytes and cost more for each product."""
    return sum(
        amount * TRUE[key] * (threads if key == "product" else 1 / threads)
        for key, amount in terms.items()
    )


def runs(threads: int = 1, **changes: Any) -> list[ProbeRun]:
    return [
        probe(f"p{number}", seconds_of(terms, threads), threads=threads, terms=terms, **changes)
        for number, shape in enumerate(SHAPES)
        if (terms := amounts(*shape))
    ]


def test_each_thread_count_has_a_table_of_its_own() -> None:
    tables, warnings = derive_tables([*runs(4), *runs(1)])
    assert warnings == ()
    assert [table.threads for table in tables] == [1, 4]
    for table in tables:
        for key, price in TRUE.items():
            factor = table.threads if key == "product" else 1 / table.threads
            assert table.seconds_of(key) == pytest.approx(price * factor, rel=1e-6)


def test_a_kept_profiles_runs_give_its_tables_again() -> None:
    kept = runs()
    tables, _ = derive_tables(kept)
    engine = EngineCalibration(
        name="fake", version="1", build="abc", tables=tables, probes=tuple(kept)
    )
    again = msgspec.json.decode(msgspec.json.encode(engine), type=EngineCalibration)
    assert derive_tables(again.probes)[0] == again.tables


def test_another_form_of_the_model_can_be_fitted_to_the_same_runs() -> None:
    def without_rows(run: ProbeRun) -> dict[str, float]:
        return {key: amount for key, amount in run.terms.items() if not key.startswith("rows")}

    (table,), _ = derive_tables(runs(), without_rows)
    assert set(table.keys) == set(TRUE) - {"rows:Q4_0"}
    assert max(abs(r) for r in table.residuals) > 0.01


def test_what_a_lost_probe_leaves_open_is_left_out_with_a_warning() -> None:
    lonely = probe("q6", 3e-3, terms=amounts(4e7, 2e4, 8, "Q6_K"), type="Q6_K")
    (table,), warnings = derive_tables([*runs(), lonely])
    assert set(table.keys) == set(TRUE)
    assert len(warnings) == 1
    assert warnings[0].startswith("not determined at 1 threads: ")
    assert "Q6_K" in warnings[0]


def test_a_thread_count_that_determines_nothing_has_no_table() -> None:
    tables, warnings = derive_tables([*runs(1), *runs(2)[:1]])
    assert [table.threads for table in tables] == [1]
    assert any("at 2 threads" in warning for warning in warnings)
    assert derive_tables([]) == ((), ())


def test_prompts_alone_make_no_table() -> None:
    """A count at which only prompts ran says nothing of tokens."""
    assert derive_tables(runs(prompt_tokens=64))[0] == ()


def test_a_token_counts_by_its_median_and_a_prompt_by_its_fast_quartile() -> None:
    samples = (0.9, 1.0, 1.0, 1.1, 4.0)
    rows = [
        msgspec.structs.replace(run, samples_s=tuple(run.samples_s[0] * s for s in samples))
        for run in runs()
    ]
    batch = {"bytes:Q4_0@8": 4e7, "product": 8.0}
    prompts = [
        probe(f"b{n}", 0.0, terms=batch, prompt_tokens=8, samples_s=tuple(1e-2 * s for s in other))
        for n, other in enumerate(((1.0, 1.0, 1.7, 1.7, 1.7), (1.0, 1.0, 1.0, 1.7, 1.7)))
    ]
    (table,), warnings = derive_tables([*rows, *prompts])
    assert warnings == ()
    # The noise of the samples weighs the equations, exact ones among themselves.
    assert table.seconds_of("bytes:Q4_0") == pytest.approx(TRUE["bytes:Q4_0"], rel=1e-4)
    expected = (1e-2 - 8 * TRUE["product"]) / 4e7
    assert table.seconds_of("bytes:Q4_0@8") == pytest.approx(expected, rel=1e-4)
    assert table.fast_time_ratio == pytest.approx(
        stats.quantile(samples, 0.25) / stats.median(samples)
    )


def test_a_run_that_varied_is_an_equation_that_counts_less() -> None:
    def off_by(spread: float) -> float:
        wrong = runs()[4]
        seconds = wrong.samples_s[0] * 1.05
        samples = tuple(seconds * (1 + spread * part) for part in (-2, -1, 0, 1, 2))
        (table,), _ = derive_tables([*runs(), msgspec.structs.replace(wrong, samples_s=samples)])
        return abs(
            seconds_of(wrong.terms)
            / sum(amount * table.seconds_of(key) for key, amount in wrong.terms.items())
            - 1
        )

    assert off_by(0.3) < 0.3 * off_by(0.0)


def test_the_fast_ratio_is_never_above_one_and_that_of_the_usual_probe() -> None:
    rows = runs()
    spread = tuple(rows[0].samples_s[0] * s for s in (0.5, 0.5, 1.0, 1.0, 1.0))
    rows[0] = msgspec.structs.replace(rows[0], samples_s=spread)
    (table,), _ = derive_tables(rows)
    assert table.fast_time_ratio == 1.0
