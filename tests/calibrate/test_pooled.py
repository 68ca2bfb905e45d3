"""calibrate.pooled: several runs of the experiment held together."""

from __future__ import annotations

import msgspec
import pytest
from builders import GB, build_engine, build_profile
from observed import probe

from calibrate import pooled
from calibrate.accuracy import Group
from calibrate.kept_runs import Run
from cpubound.profile.values import MachineProfile

GROUP = Group(models=("smollm2-135m:F16", "smollm2-360m:F16"), threads=(1, 2))


def profile_of(rate: float) -> MachineProfile:
    """A machine whose probes went through F16 at a rate on each thread."""
    runs = tuple(
        probe(
            name,
            n_bytes / (threads * rate),
            type="F16",
            threads=threads,
            matrices=(("F16", 1024, n_bytes),),
            products=0,
        )
        for threads in (1, 2)
        for name, n_bytes in (("a", 10**8), ("b", 2 * 10**8))
    )
    engine = msgspec.structs.replace(build_engine({"F16": {1: rate, 2: 2 * rate}}), probes=runs)
    return build_profile({1: 20.0 * GB, 2: 40.0 * GB}, engine)


def pool_one(observed: tuple[float, ...]) -> list[pooled.PooledCell]:
    seen = {"paired_error": 0.05, "noise_floor": 0.01}
    run = Run(name="a", profile=profile_of(10 * GB), observed=observed, seen=(seen,) * 4)
    return pooled.pool([run], [GROUP])[0]


def test_cells_are_predicted_from_the_probes_and_held_beside_what_was_seen() -> None:
    cells = pool_one((30.0, 60.0, 14.0, 28.0))
    assert [c.prediction.basis for c in cells] == ["engine"] * 4
    first = cells[0]
    assert first.error == pytest.approx(first.prediction.tokens_per_s / 30.0 - 1)
    assert first.naive_error == pytest.approx(first.prediction.ceiling_tokens_per_s / 30 - 1)
    # The most that memory gave, at two threads, over the whole file.
    assert first.file_size_error == pytest.approx(40 * GB / first.prediction.file_bytes / 30 - 1)
    assert first.kernel_error is None  # there is no other run to tell how llama.cpp stands


def test_another_run_is_as_far_as_what_was_observed_there() -> None:
    one, two = pool_one((30.0, 60.0, 14.0, 28.0)), pool_one((33.0, 60.0, 14.0, 56.0))
    assert pooled.run_distances([one, two]) == pytest.approx([1 / 11, 0, 0, 0.5])


def test_a_cell_is_one_row_with_its_error_in_every_run() -> None:
    exact = tuple(c.prediction.tokens_per_s for c in pool_one((1.0,) * 4))
    twice = tuple(2 * rate for rate in exact)
    table = pooled.cell_table([pool_one(exact), pool_one(twice)])
    assert table.columns[-2:] == ("error, run 1", "error, run 2")
    assert [row[-2:] for row in table.rows] == [("+0.0 %", "−50.0 % *")] * 4


def test_the_summary_has_rows_for_runs_thread_counts_and_all() -> None:
    exact = tuple(c.prediction.tokens_per_s for c in pool_one((1.0,) * 4))
    table = pooled.summary_table([pool_one(exact), pool_one(tuple(r / 1.1 for r in exact))])
    rows = {row[0]: dict(zip(table.columns[1:], row[1:], strict=True)) for row in table.rows}
    assert list(rows) == ["run 1", "run 2", "1 thread", "2 threads", "all"]
    assert rows["all"]["cells"] == "8"
    assert rows["all"]["median error"] == "5.0 %"
    assert rows["run 2"]["bias"] == "+10.0 %"
    assert rows["all"]["another run"] == "10.0 %"
    assert rows["run 1"]["another run"] == "–"
    assert rows["all"]["paired"] == "5.0 %"
