"""calibrate.pooled, transfer, interval, ablation: what they say of kept runs."""

from __future__ import annotations

import msgspec
import pytest
from kept_run import OWN, SECONDS, equations, kept_profile, kept_run

from calibrate import ablation, interval, pooled, transfer
from calibrate.kept_runs import judge_run
from cpubound.cost.interval import FormErrors
from cpubound.cost.transfer import Transfer, estimate_table

import tomllib  # isort: skip


def rows_of(table) -> dict[str, tuple[str, ...]]:
    return {row[0]: row for row in table.rows}


def test_the_summary_has_a_row_for_threads_depths_machines_and_all() -> None:
    judged = judge_run(kept_run("a", errors=(0.01, 0.02, 0.03)))
    rows = rows_of(pooled.summary_table(judged))
    assert set(rows) >= {"a", "1 thread", "2 threads, shallow", "machine AuthenticAMD 26/2", "all"}
    assert rows["all"][1:3] == ("6", "2.0 %")
    assert rows["1 thread"][1] == "3"


def test_cells_outside_their_interval_are_marked_in_each_run() -> None:
    judged = [judge_run(kept_run(name, errors=(0.0, 0.9))) for name in ("a", "b")]
    table = pooled.cell_table(judged)
    assert table.columns[-2:] == ("error, run 1", "error, run 2")
    assert sum(cell.endswith("*") for row in table.rows for cell in row[-2:]) == 4


def test_ratios_are_llama_cpps_seconds_over_ours() -> None:
    ratios = transfer.fit_transfer([kept_profile()]).ratios
    expected = SECONDS["bytes:Q4_K"] * OWN["Q4_K"][1]
    assert ratios["bytes:Q4_K"].one == pytest.approx(expected)
    assert ratios["bytes:Q4_K"].kernel == "Q4_K"
    assert ratios["product"].kernel is None


def test_ratios_give_the_table_of_the_machine_they_are_from_again() -> None:
    profile = kept_profile()
    table = estimate_table(profile, 2, {"x86": transfer.fit_transfer([profile])})
    measured = next(t for t in profile.engine.tables if t.threads == 2)
    assert table is not None
    assert table.by_key == pytest.approx(measured.by_key)


def test_the_error_of_a_ratio_is_the_spread_of_runs() -> None:
    close = transfer.fit_transfer([kept_profile(), kept_profile(slower=1.001)])
    apart = transfer.fit_transfer([kept_profile(), kept_profile(slower=1.3)])
    assert close.ratios["bytes:Q8_0"].error == transfer.LEAST_ERROR
    assert apart.ratios["bytes:Q8_0"].error > 0.1


def test_the_printed_ratios_are_read_again_as_they_were() -> None:
    found = transfer.fit_transfer([kept_profile()])
    text = "\n".join(transfer.transfer_lines("x86", found))
    again = msgspec.convert(tomllib.loads(text)["x86"], Transfer)
    assert again.cpus == ("AuthenticAMD 26/2",)
    assert again.ratios["bytes:Q8_0"].two == pytest.approx(found.ratios["bytes:Q8_0"].two, rel=1e-3)


def test_no_machine_helps_to_predict_itself_without_llama_cpp() -> None:
    mine = kept_run("mine", identity=("26", "2"))
    other = kept_run("other", identity=("25", "1"), slower=2.0)
    judged = pooled.judge_without_engine(mine, [mine, other], "judged")
    assert {cell.prediction.basis for cell in judged} == {"kernel"}
    # The other machine's llama.cpp takes twice as long beside the same kernels.
    assert [cell.error for cell in judged[:1]] == pytest.approx([-0.5], abs=0.02)


def test_form_errors_are_those_with_which_a_side_holds() -> None:
    errors = tuple(0.01 * n for n in range(-5, 6))
    run = kept_run(errors=errors, set_name="interval")
    cells = [c for c in judge_run(run, sets=("interval",)) if c.cell.threads == 1]
    form = interval.form_errors(cells)
    # 95 % of the errors lie below 4.5 % on either side; noise and rates hold a part of them.
    assert 0.019 < form.slower <= 0.045 / 1.645 + 0.005
    assert 0.019 < form.faster <= 0.045 / 1.645 + 0.005


def test_few_runs_widen_the_form_errors_as_students_quantile_does() -> None:
    # Of a table: 6.314 for one degree of freedom, 2.132 for four, 1.645 for the normal law.
    assert interval.widening(1) == interval.widening(2) == pytest.approx(6.314 / 1.645, rel=1e-3)
    assert interval.widening(5) == pytest.approx(2.132 / 1.645, rel=1e-3)
    assert interval.widening(10**6) == pytest.approx(1.0, rel=1e-4)


def test_form_errors_are_one_sided_where_the_errors_are() -> None:
    run = kept_run(errors=(0.05, 0.08, 0.10, 0.20), set_name="interval")
    form = interval.form_errors(judge_run(run, sets=("interval",)))
    assert isinstance(form, FormErrors)
    assert form.slower > 0.08
    assert form.faster == interval.HEDGE * form.slower


def test_a_form_without_a_term_is_fitted_and_judged_without_it() -> None:
    run = kept_run(errors=(0.0,), set_name="development")
    engine = msgspec.structs.replace(run.profile.engine, probes=equations())
    run = msgspec.structs.replace(run, profile=msgspec.structs.replace(run.profile, engine=engine))
    forms = {form.name: form for form in ablation.FORMS}
    (as_it_is, *_) = ablation.judge_form(run, forms["as it is"], "development")
    (no_rows, *_) = ablation.judge_form(run, forms["no rows"], "development")
    assert as_it_is.error == pytest.approx(0.0, abs=1e-3)
    assert abs(no_rows.error) > 0.01


def test_the_ablation_has_a_row_for_every_form() -> None:
    judged = {form.name: judge_run(kept_run()) for form in ablation.FORMS}
    table = ablation.ablation_table(judged)
    assert [row[0] for row in table.rows] == [form.name for form in ablation.FORMS]
    assert {len(row) for row in table.rows} == {len(table.columns)}
