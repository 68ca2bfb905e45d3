from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest
from builders import GB
from fakes import FakeRunner

from cpubound.engine.values import RunSettings
from cpubound.measuring.engine_stage import calibrate_engine
from cpubound.measuring.plan import Plan, load_plan
from cpubound.measuring.probes import Probe, ProbeCell, plan_probes, probe_traffic
from cpubound.model.values import ModelSpec
from cpubound.profile.values import EngineCalibration
from cpubound.units import MIB

RATES = {"Q8_0": 20.0 * GB, "Q4_K": 12.0 * GB}
KV_RATE = 5.0 * GB
PER_TOKEN, PER_PRODUCT = 300e-6, 10e-6
BATCH_SLOPE, ATTENTION_FLOPS = 0.5, 40e9
PLAN = msgspec.structs.replace(
    load_plan("quick", types=tuple(RATES)), engine_seconds=1000.0, engine_rounds=3
)
PROBES = plan_probes(PLAN, 96 * MIB)


def seconds_of(settings: RunSettings) -> float:
    """What an engine with these rates takes for one of the probes."""
    probe = next(p for p in PROBES if p.file_name == Path(settings.model_path).name)
    cell = next(
        c
        for c in probe.cells
        if (c.depth_tokens, c.flash_attn, c.prompt_tokens)
        == (settings.depth_tokens, settings.flash_attn, settings.prompt_tokens)
    )
    if settings.prompt_tokens is not None:
        return prompt_seconds(probe, cell) / settings.threads
    traffic = probe_traffic(probe, cell, settings.tokens)
    weights = sum(
        w.n_bytes / RATES[w.type] for w in traffic.weights if w.kind in ("matmul", "experts")
    )
    fixed = PER_TOKEN + PER_PRODUCT * traffic.matrix_products
    return (weights + traffic.kv_touched_bytes / KV_RATE) / settings.threads + fixed


def prompt_seconds(probe: Probe, cell: ProbeCell) -> float:
    """A prompt's time on one thread: products and attention."""
    traffic = probe_traffic(probe, cell, 1)
    products = sum(w.n_bytes for w in traffic.products) / RATES[probe.type]
    operations = traffic.batch * traffic.attention_operations
    return products * BATCH_SLOPE * traffic.batch + operations / ATTENTION_FLOPS


class Disk:
    """Writes probe files of a byte and remembers how many there were at once."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.most = 0

    def write(self, spec: ModelSpec, path: Path) -> None:
        path.write_bytes(b"x")
        self.written.append(path.name)
        self.most = max(self.most, len(list(path.parent.iterdir())))


def calibrate(
    folder: Path, runner: FakeRunner, disk: Disk, *, plan: Plan = PLAN, open_bytes: int = 10**12
) -> tuple[EngineCalibration, tuple[str, ...]]:
    return calibrate_engine(
        runner,
        PROBES,
        plan,
        thread_counts=(1, 2),
        folder=folder,
        write_model=disk.write,
        reference=lambda threads: 20.0 * GB,
        open_bytes=open_bytes,
        progress=lambda stage, done: None,
    )


def test_rates_and_costs_of_the_engine_come_back(tmp_path: Path) -> None:
    engine, warnings = calibrate(tmp_path, FakeRunner(seconds_per_step=seconds_of), Disk())
    assert warnings == ()
    rates = {(r.type, r.threads): r.bytes_per_s for r in engine.rates}
    for name, rate in RATES.items():
        assert rates[name, 1] == pytest.approx(rate, rel=0.02)
        assert rates[name, 2] == pytest.approx(2 * rate, rel=0.02)
    cost = next(c for c in engine.costs if c.threads == 2)
    assert cost.seconds_per_product == pytest.approx(PER_PRODUCT, rel=0.05)
    assert cost.seconds_per_token == pytest.approx(PER_TOKEN, rel=0.2)
    assert {a.head_dim for a in engine.attention} == {64, 128, 256}
    assert engine.residual < 0.01


def test_weights_that_multiply_several_tokens_have_rates_of_their_own(tmp_path: Path) -> None:
    engine, _ = calibrate(tmp_path, FakeRunner(seconds_per_step=seconds_of), Disk())
    assert {row.tokens for row in engine.batch_rates} == set(PLAN.batch_tokens)
    row = next(r for r in engine.batch_rates if (r.type, r.threads, r.tokens) == ("Q4_K", 2, 64))
    assert row.bytes_per_s == pytest.approx(2 * RATES["Q4_K"] / (64 * BATCH_SLOPE), rel=0.05)


def test_attention_over_a_prompt_is_told_by_two_depths(tmp_path: Path) -> None:
    engine, _ = calibrate(tmp_path, FakeRunner(seconds_per_step=seconds_of), Disk())
    rates = {(row.head_dim, row.threads): row.flop_per_s for row in engine.prompt_attention}
    assert rates[64, 1] == pytest.approx(ATTENTION_FLOPS, rel=1e-6)
    assert rates[128, 2] == pytest.approx(2 * ATTENTION_FLOPS, rel=1e-6)


def test_noise_of_the_steps_shows_in_the_fast_ratio_and_not_in_the_rates(tmp_path: Path) -> None:
    jitter = random.Random(1)
    steps = tuple(max(-0.2, jitter.gauss(0, 0.1)) for _ in range(97))
    engine, _ = calibrate(tmp_path, FakeRunner(seconds_per_step=seconds_of, jitter=steps), Disk())
    rates = {(r.type, r.threads): r.bytes_per_s for r in engine.rates}
    assert rates["Q8_0", 2] == pytest.approx(2 * RATES["Q8_0"], rel=0.1)
    assert all(c.fast_time_ratio < 0.98 for c in engine.costs)


def test_a_probe_that_crashes_is_left_out_and_the_rest_goes_on(tmp_path: Path) -> None:
    runner = FakeRunner(
        seconds_per_step=seconds_of,
        crash_if=lambda s: "wide" in s.model_path and "Q4_K" in s.model_path,
    )
    engine, warnings = calibrate(tmp_path, runner, Disk())
    assert len(warnings) == 1
    assert "wide" in warnings[0]
    rates = {(r.type, r.threads): r.bytes_per_s for r in engine.rates}
    assert rates["Q8_0", 2] == pytest.approx(2 * RATES["Q8_0"], rel=0.02)
    assert rates["Q4_K", 2] == pytest.approx(2 * RATES["Q4_K"], rel=0.05)


def test_a_type_of_which_only_batches_ran_has_no_rates(tmp_path: Path) -> None:
    runner = FakeRunner(
        seconds_per_step=seconds_of,
        crash_if=lambda s: "Q4_K" in s.model_path and "batch" not in Path(s.model_path).name,
    )
    engine, _ = calibrate(tmp_path, runner, Disk())
    assert {row.type for row in engine.rates} == {"Q8_0"}
    assert {row.type for row in engine.batch_rates} == {"Q8_0"}


def test_models_over_the_budget_are_closed_and_their_files_removed(tmp_path: Path) -> None:
    runner, disk = FakeRunner(seconds_per_step=seconds_of), Disk()
    calibrate(tmp_path, runner, disk, open_bytes=250 * MIB)
    assert disk.most < len(PROBES)
    assert len(disk.written) > len(PROBES)
    assert list(tmp_path.iterdir()) == []
    assert runner.open_models == set()


def test_files_are_removed_when_the_stage_is_interrupted(tmp_path: Path) -> None:
    def interrupted(settings: RunSettings) -> float:
        if settings.threads == 2:
            raise KeyboardInterrupt
        return seconds_of(settings)

    with pytest.raises(KeyboardInterrupt):
        calibrate(tmp_path, FakeRunner(seconds_per_step=interrupted), Disk())
    assert list(tmp_path.iterdir()) == []


def test_one_round_is_finished_even_when_the_time_is_over(tmp_path: Path) -> None:
    runner = FakeRunner(seconds_per_step=seconds_of)
    plan = msgspec.structs.replace(PLAN, engine_seconds=0.0)
    calibrate(tmp_path, runner, Disk(), plan=plan)
    cells = sum(len(p.cells) for p in PROBES) * 2
    assert len(runner.runs) == cells


def test_every_sample_of_every_probe_is_kept(tmp_path: Path) -> None:
    runner = FakeRunner(seconds_per_step=seconds_of)
    engine, _ = calibrate(tmp_path, runner, Disk())
    assert sum(len(p.samples_s) for p in engine.probes) == sum(r.tokens for r in runner.runs)
    names: set[str] = {p.probe for p in engine.probes}
    assert names == {p.name for p in PROBES}


def test_probe_files_carry_the_name_of_their_probe() -> None:
    probe: Probe = PROBES[0]
    assert probe.path(Path("x")).name == f"{probe.name}.gguf"
