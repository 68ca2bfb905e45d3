"""cpubound.measuring.engine_stage: a fake engine's hidden table comes back."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from builders import GB, build_profile
from fakes import FakeRunner, OneModelRunner
from hidden_engine import LAST_LEVEL, Lab, hidden_seconds

from cpubound.cost.predict import predict_decode, predict_prompt
from cpubound.cost.rates import measured_attention, measured_types, weight_rate
from cpubound.cost.terms import add_up, step_terms
from cpubound.engine.inprocess import check_settings
from cpubound.engine.runner import TurnTaker
from cpubound.engine.values import RunSettings
from cpubound.errors import EngineCrashed, EngineUnavailable
from cpubound.measuring.engine_stage import PASSES, PROMPT_ROUNDS, TURN_BYTES, calibrate_engine
from cpubound.measuring.plan import load_plan
from cpubound.measuring.probes import Probe
from cpubound.model.resolve import resolve_model
from cpubound.model.traffic import compute_traffic, prompt_steps
from cpubound.profile.values import EngineCalibration, RateTable
from cpubound.setting import Setting
from cpubound.units import MIB

QUICK = load_plan("quick", ("Q8_0", "Q4_K"))


@pytest.fixture
def lab() -> Lab:
    return Lab(plan=QUICK)


@pytest.fixture
def calibrate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[EngineCalibration, tuple[str, ...]]]:
    """Run the stage: one round, or as many as seconds are given to the plan."""

    def call(
        lab: Lab,
        runner: OneModelRunner,
        *,
        thread_counts: Sequence[int] = (1, 2),
        open_bytes: int = 10**12,
        last_level: int | None = LAST_LEVEL,
        seconds: float = 0.0,
    ) -> tuple[EngineCalibration, tuple[str, ...]]:
        monkeypatch.setattr("cpubound.measuring.engine_stage.time", lab)
        found = calibrate_engine(
            runner,
            lab.probes,
            msgspec.structs.replace(lab.plan, engine_seconds=seconds),
            thread_counts=thread_counts,
            folder=tmp_path,
            write_model=lab.write,
            reference=lambda threads: 20.0 * GB * threads,
            open_bytes=open_bytes,
            last_level_cache_bytes=last_level,
            progress=lab.show,
        )
        assert list(tmp_path.iterdir()) == []
        assert runner.open_models == set()
        return found

    return call


def fake_runner(lab: Lab, **changes: object) -> FakeRunner:
    return FakeRunner(seconds_per_step=lab.seconds_of, **changes)


def table_of(engine: EngineCalibration, threads: int) -> RateTable:
    return next(table for table in engine.tables if table.threads == threads)


def assert_recovered(engine: EngineCalibration, threads: int, *, within: float = 0.01) -> None:
    table = table_of(engine, threads)
    assert table.keys
    for key in table.keys:
        expected = hidden_seconds(key, threads)
        assert table.seconds_of(key) == pytest.approx(expected, rel=within), key


@pytest.mark.parametrize("name", ["quick", "standard", "thorough"])
def test_the_hidden_table_of_the_engine_comes_back(name: str, calibrate) -> None:
    lab = Lab(plan=load_plan(name))
    engine, warnings = calibrate(lab, fake_runner(lab))
    assert warnings == ()
    assert engine.threads == (1, 2)
    assert_recovered(engine, 1)
    assert_recovered(engine, 2)
    assert measured_types(engine) == tuple(sorted(lab.plan.types))
    assert {head for *_, head in measured_attention(engine)} == {64, 128, 256}
    assert engine.residual < 1e-3
    most = {key for key in table_of(engine, 2).keys if key.startswith("bytes:Q4_K@")}
    assert most == {f"bytes:Q4_K@{n}" for n in lab.plan.batch_tokens}
    assert (engine.name, engine.version, engine.features) == ("fake", "1", ("AVX2",))


def test_one_thread_alone_is_a_calibration(calibrate, lab: Lab) -> None:
    engine, warnings = calibrate(lab, fake_runner(lab), thread_counts=(1,))
    assert warnings == ()
    assert engine.threads == (1,)
    assert_recovered(engine, 1)
    assert any("@16" in key for key in table_of(engine, 1).keys)


def test_a_type_that_was_not_measured_has_no_rate(calibrate) -> None:
    """Helpers of other probes are of the types that were asked for, too."""
    lab = Lab(plan=load_plan("quick", ("IQ4_XS", "Q4_K")))
    engine, warnings = calibrate(lab, fake_runner(lab))
    assert warnings == ()
    assert measured_types(engine) == ("IQ4_XS", "Q4_K")
    named = {
        key.partition(":")[2].partition("@")[0]
        for table in engine.tables
        for key in table.keys
        if key.startswith(("bytes:", "rows:", "experts:"))
    }
    assert named == {"IQ4_XS", "Q4_K"}
    assert {run.type for run in engine.probes} == {"IQ4_XS", "Q4_K"}
    rate = weight_rate(engine, "Q8_0", 4096, 2)
    assert rate is None or rate.assumption is not None


@pytest.mark.parametrize("type_name", ["IQ3_S", "TQ2_0", "MXFP4", "F16", "Q4_1"])
def test_one_type_alone_is_measured_with_helpers_of_itself(calibrate, type_name: str) -> None:
    lab = Lab(plan=load_plan("quick", (type_name,)))
    engine, warnings = calibrate(lab, fake_runner(lab))
    assert warnings == ()
    assert measured_types(engine) == (type_name,)
    assert_recovered(engine, 2)


def test_an_engine_that_takes_no_turns_decodes_every_probe_alone(calibrate) -> None:
    lab = Lab(plan=QUICK, has_caches=False)
    runner = OneModelRunner(seconds_per_step=lab.seconds_of)
    assert not isinstance(runner, TurnTaker)
    engine, warnings = calibrate(lab, runner, seconds=2.5)
    assert warnings == ()
    assert_recovered(engine, 1)
    assert_recovered(engine, 2)
    assert not any(run.takes_turns for run in engine.probes)
    assert not any(key.startswith("cached@") for table in engine.tables for key in table.keys)
    assert not any("cached" in run.model_path for run in runner.runs)


@pytest.mark.parametrize(
    "lost", ["wide", "deep", "narrow", "tiny", "long", "batch", "cached", "kv128-2x256-8000"]
)
def test_a_probe_that_crashes_is_left_out_and_the_rest_goes_on(calibrate, lost: str) -> None:
    lab = Lab(plan=load_plan("standard", ("Q8_0", "Q4_K")))
    doomed = {p.name for p in lab.probes if p.name.startswith(lost)}
    # Of the deep and the batch probes one type; all of the cached ones.
    doomed = {name for name in doomed if "cached" in name or "Q8_0" not in name} or doomed
    runner = fake_runner(lab, crash_if=lambda s: Path(s.model_path).stem in doomed)
    engine, warnings = calibrate(lab, runner)
    failed = {w.split()[1] for w in warnings if w.endswith("try another")}
    assert failed == doomed
    assert_recovered(engine, 1, within=0.02)
    assert_recovered(engine, 2, within=0.02)
    assert not {run.probe for run in engine.probes} & doomed
    assert {run.probe for run in engine.probes} == {p.name for p in lab.probes} - doomed
    for table in engine.tables:
        assert {"bytes:Q8_0", "bytes:Q4_K"} <= set(table.keys)


@pytest.mark.parametrize(
    "lost",
    [
        "kv64-2x256-2000",
        "kv128-2x256-2000",
        "kv256-5x128-2000",
    ],
)
def test_a_lost_probe_of_attention_leaves_the_rates_of_weights(calibrate, lost: str) -> None:
    lab = Lab(plan=load_plan("standard", ("Q8_0", "Q4_K")))
    runner = fake_runner(lab, crash_if=lambda s: Path(s.model_path).stem == lost)
    engine, warnings = calibrate(lab, runner)
    assert any(lost in warning for warning in warnings)
    for threads in (1, 2):
        table = table_of(engine, threads)
        for key in ("bytes:Q8_0", "bytes:Q4_K", "rows:Q4_K", "product", "bytes:Q4_K@8"):
            assert table.seconds_of(key) == pytest.approx(hidden_seconds(key, threads), rel=0.03)


def test_a_probe_that_crashes_at_more_threads_stays_out(calibrate, lab: Lab) -> None:
    name = next(p.name for p in lab.probes if p.name.startswith("wide"))
    runner = fake_runner(lab, crash_if=lambda s: name in s.model_path and s.setting.threads == 2)
    _, warnings = calibrate(lab, runner, seconds=3.5)
    assert [w.split()[1] for w in warnings] == [name]
    tried = [s for s in runner.runs if name in s.model_path]
    assert len(tried) == 0
    asked = [s for runs in runner.rotations for s in runs if name in s.model_path]
    # Once with the others, once alone.
    assert len([s for s in asked if s.setting.threads == 2]) == 2


def test_a_type_whose_probes_all_crash_has_no_rates(calibrate, lab: Lab) -> None:
    runner = fake_runner(
        lab,
        crash_if=lambda s: "Q4_K" in s.model_path and "batch" not in Path(s.model_path).name,
    )
    engine, warnings = calibrate(lab, runner)
    assert measured_types(engine) == ("Q8_0",)
    assert not any(key.startswith("rows:Q4_K") for table in engine.tables for key in table.keys)
    assert any(w.endswith("try another") for w in warnings)
    assert_recovered(engine, 2)


@dataclass(kw_only=True)
class LonelyRunner(FakeRunner):
    """Dies whenever several models take turns, though each of them alone does not."""

    def rotate(
        self, runs: Sequence[RunSettings], *, passes: int, seed: int
    ) -> tuple[tuple[float, ...], ...]:
        if len(runs) > 1:
            raise EngineCrashed("llama.cpp ended inside a run: out of memory")
        return super().rotate(runs, passes=passes, seed=seed)


def test_an_engine_that_dies_of_all_probes_together_ends_the_round(calibrate, lab: Lab) -> None:
    engine, warnings = calibrate(lab, LonelyRunner(seconds_per_step=lab.seconds_of), seconds=2.5)
    assert not any(run.takes_turns for run in engine.probes)
    assert any(w.startswith("probes failed when they took turns") for w in warnings)


def test_an_engine_that_is_gone_ends_the_stage(tmp_path: Path, calibrate, lab: Lab) -> None:
    def gone(settings: RunSettings) -> float:
        raise EngineUnavailable("llama-cpp-python is not installed")

    with pytest.raises(EngineUnavailable):
        calibrate(lab, FakeRunner(seconds_per_step=gone))
    assert list(tmp_path.iterdir()) == []


def test_probes_that_do_not_fit_at_once_are_measured_in_two_groups(calibrate, lab: Lab) -> None:
    total = sum(p.file_bytes for p in lab.probes)
    runner = fake_runner(lab)
    engine, warnings = calibrate(lab, runner, open_bytes=round(0.9 * total))
    assert warnings == ()
    assert_recovered(engine, 1)
    assert_recovered(engine, 2)
    groups = {frozenset(s.model_path for s in runs) for runs in runner.rotations}
    members = sorted(itertools.chain.from_iterable(groups))
    assert len(groups) >= 2
    assert {Path(path).stem for path in members} == {
        p.name for p in lab.probes if any(c.takes_turns for c in p.cells)
    }
    assert lab.most < len(lab.probes)


def test_a_probe_that_the_memory_does_not_hold_is_left_out_with_its_size(
    calibrate, lab: Lab
) -> None:
    largest = max(lab.probes, key=lambda p: p.file_bytes)
    runner = fake_runner(lab)
    _, warnings = calibrate(lab, runner, open_bytes=largest.file_bytes)
    assert any(
        warning.startswith(f"probe {largest.name} failed: it takes ") and "may be open" in warning
        for warning in warnings
    )
    assert largest.name not in {
        Path(settings.model_path).stem for turn in runner.rotations for settings in turn
    }


def test_files_are_removed_when_the_stage_is_interrupted(
    tmp_path: Path, calibrate, lab: Lab
) -> None:
    def interrupted(settings: RunSettings) -> float:
        if settings.setting.threads == 2 and settings.prompt_tokens is None:
            raise KeyboardInterrupt
        return lab.seconds_of(settings)

    with pytest.raises(KeyboardInterrupt):
        calibrate(lab, FakeRunner(seconds_per_step=interrupted))
    assert lab.written
    assert list(tmp_path.iterdir()) == []


def test_one_round_is_finished_even_when_the_time_is_over(calibrate, lab: Lab) -> None:
    runner = fake_runner(lab)
    calibrate(lab, runner, seconds=0.0)
    turns = [c for p in lab.probes for c in p.cells if c.takes_turns]
    prompts = [c for p in lab.probes for c in p.cells if c.prompt_tokens]
    alone = [c for p in lab.probes for c in p.cells if not c.takes_turns and not c.prompt_tokens]
    assert sum(map(len, runner.rotations)) == 2 * len(turns)
    asked = [s for s in runner.runs if s.prompt_tokens]
    assert len(asked) == 2 * PROMPT_ROUNDS * len(prompts)
    assert len(runner.runs) - len(asked) == 2 * len(alone)


def test_rounds_go_on_until_the_time_of_the_plan_is_over(calibrate, lab: Lab) -> None:
    runner = fake_runner(lab)
    calibrate(lab, runner, seconds=2.5)
    turns = [c for p in lab.probes for c in p.cells if c.takes_turns]
    assert sum(map(len, runner.rotations)) == 3 * 2 * len(turns)
    # Prompts are seen in their rounds and no more.
    prompts = [c for p in lab.probes for c in p.cells if c.prompt_tokens]
    asked = [s for s in runner.runs if s.prompt_tokens]
    assert len(asked) == 2 * PROMPT_ROUNDS * len(prompts)


@pytest.mark.parametrize("last_level", [None, 4 * MIB, 32 * MIB, 10**9])
def test_probes_that_take_turns_exceed_the_cache_together(
    calibrate, lab: Lab, last_level: int | None
) -> None:
    runner = fake_runner(lab)
    calibrate(lab, runner, last_level=last_level, thread_counts=(1,))
    sizes = [sum(map(lab.bytes_of, runs)) for runs in runner.rotations]
    wanted = max(20 * (last_level or 0), TURN_BYTES)
    assert all(size >= min(wanted, sum(sizes)) for size in sizes)
    # More at once would leave pages untouched for longer: no two could be halves.
    assert all(size < 3 * wanted for size in sizes)
    assert (len(sizes) > 1) == (sum(sizes) > 2 * wanted)


def test_every_request_has_room_in_its_context(calibrate) -> None:
    lab = Lab(plan=load_plan("standard", ("Q8_0",)))
    runner = fake_runner(lab)
    calibrate(lab, runner, seconds=1.5)
    for settings in (*runner.runs, *itertools.chain.from_iterable(runner.rotations)):
        check_settings(settings)
    for settings in itertools.chain.from_iterable(runner.rotations):
        assert settings.setting.n_ctx >= settings.setting.depth_tokens + PASSES + 1
        assert settings.tokens == PASSES + 1


def test_every_sample_of_every_probe_is_kept_with_its_reference(calibrate, lab: Lab) -> None:
    runner = fake_runner(lab)
    engine, _ = calibrate(lab, runner, seconds=2.5)
    taken = PASSES * sum(map(len, runner.rotations)) + sum(s.tokens for s in runner.runs)
    assert sum(len(run.samples_s) for run in engine.probes) == taken
    assert {run.probe for run in engine.probes} == {p.name for p in lab.probes}
    for run in engine.probes:
        assert set(run.reference_bytes_per_s) == {20.0 * GB * run.threads}
    cells = {(r.probe, r.threads, r.depth_tokens, r.flash_attn, r.prompt_tokens, r.kv_type_k)
             for r in engine.probes}  # fmt: skip
    assert len(cells) == len(engine.probes)


def test_noise_of_the_tokens_shows_in_the_fast_ratio_and_hardly_in_the_rates(
    calibrate, lab: Lab
) -> None:
    jitter = random.Random(1)
    tokens = tuple(max(-0.2, jitter.gauss(0, 0.1)) for _ in range(997))
    engine, _ = calibrate(lab, fake_runner(lab, jitter=tokens), seconds=30.5)
    for threads in (1, 2):
        table = table_of(engine, threads)
        for name in ("Q8_0", "Q4_K"):
            expected = hidden_seconds(f"bytes:{name}", threads)
            assert table.seconds_of(f"bytes:{name}") == pytest.approx(expected, rel=0.1)
        assert 0.9 < table.fast_time_ratio < 0.98
    assert 0.005 < engine.noise < 0.1


def test_a_quiet_engine_has_no_noise(calibrate, lab: Lab) -> None:
    engine, _ = calibrate(lab, fake_runner(lab), seconds=2.5)
    # Runs of other lengths end at other depths, by less than 1 %.
    assert engine.noise < 1e-3
    assert all(table.fast_time_ratio > 0.999 for table in engine.tables)


def test_the_seed_decides_the_order(calibrate) -> None:
    orders = []
    for _ in range(2):
        lab = Lab(plan=QUICK)
        runner = fake_runner(lab)
        calibrate(lab, runner)
        orders.append([Path(s.model_path).name for runs in runner.rotations for s in runs])
    assert orders[0] == orders[1]
    assert orders[0] != sorted(orders[0])


MODEL = "llama-3.2-1b:Q8_0"


def test_a_model_is_predicted_as_the_hidden_table_has_it(calibrate, lab: Lab) -> None:
    engine, _ = calibrate(lab, fake_runner(lab))
    profile = build_profile({1: 20.0 * GB, 2: 30.0 * GB}, engine)
    spec = resolve_model(MODEL)
    traffic = compute_traffic(spec, Setting(depth_tokens=3000))
    hidden = sum(n * hidden_seconds(k, 2) for k, n in add_up(step_terms(traffic)).items())
    p = predict_decode(profile, traffic, 2)
    assert p.basis == "engine"
    assert 1 / p.tokens_per_s == pytest.approx(hidden, rel=0.005)


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_prompts_are_predicted_at_every_thread_count_between_the_ends(
    calibrate, lab: Lab, threads: int
) -> None:
    """Prompts run at the fewest and the most threads only."""
    engine, _ = calibrate(lab, fake_runner(lab), thread_counts=(1, 2, 4))
    profile = build_profile({1: 20.0 * GB, 4: 30.0 * GB}, engine)
    spec = resolve_model(MODEL)
    steps = prompt_steps(spec, 64, Setting())
    after = compute_traffic(spec, Setting(depth_tokens=64))
    found = [predict_prompt(profile, steps, after, t).seconds for t in (1, threads, 4)]
    assert found[0] >= found[1] >= found[2]


def test_probe_files_carry_the_name_of_their_probe(lab: Lab) -> None:
    probe: Probe = lab.probes[0]
    assert probe.path(Path("x")).name == f"{probe.name}.gguf"
