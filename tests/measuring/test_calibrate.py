from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import GB, build_machine
from fake_bench import FakeLab
from fakes import FakeRunner
from hidden_engine import Lab, hidden_seconds

from cpubound.cost.rates import measured_types
from cpubound.engine.values import RunSettings
from cpubound.measuring.calibrate import calibrate, engine_thread_counts
from cpubound.measuring.plan import load_plan, probe_bytes
from cpubound.model.values import ModelSpec
from cpubound.profile.values import MachineProfile

PLAN = msgspec.structs.replace(
    load_plan("quick", types=("Q8_0",)), engine_seconds=0.0, bandwidth_rounds=3
)
RATES = {1: 20e9, 2: 30e9, 3: 36e9, 4: 36.5e9}


def write_nothing(spec: ModelSpec, path: Path) -> None:
    path.write_bytes(b"")


def run(lab: FakeLab, runner: FakeRunner | None, tmp_path: Path, **options: Any) -> MachineProfile:
    return calibrate(
        options.pop("machine", build_machine(4)),
        PLAN,
        open_bench=lab.open,
        runner=runner,
        write_model=write_nothing,
        progress=lambda stage, done: None,
        temporary_folder=tmp_path,
        **options,
    )


def test_without_an_engine_the_profile_holds_bandwidth_saturation_and_noise(
    tmp_path: Path,
) -> None:
    profile = run(FakeLab(bytes_per_s=RATES), None, tmp_path)
    assert profile.engine is None
    assert set(profile.measurements("read", "anon_4k")) == {1, 2, 3, 4}
    assert set(profile.measurements("read", "anon_2m")) == {1, 2, 3, 4}
    assert profile.saturation[0].threads == 3
    assert profile.noise.verdict == "quiet"


def test_with_an_engine_its_rates_stand_in_the_profile(tmp_path: Path) -> None:
    probes = Lab(plan=PLAN, size=probe_bytes(PLAN, 12 * GB), last_level=None)
    runner = FakeRunner(seconds_per_step=probes.seconds_of)
    profile = run(FakeLab(bytes_per_s=RATES), runner, tmp_path)
    assert profile.engine is not None
    assert profile.engine.threads == (1, 2, 3, 4)
    assert measured_types(profile.engine) == ("Q8_0",)
    for table in profile.engine.tables:
        expected = hidden_seconds("bytes:Q8_0", table.threads)
        assert table.seconds_of("bytes:Q8_0") == pytest.approx(expected, rel=0.01)
    assert list(tmp_path.iterdir()) == []


def test_a_system_without_huge_pages_is_measured_on_small_ones_only(tmp_path: Path) -> None:
    machine = build_machine(2, transparent_huge_pages="never")
    profile = run(FakeLab(bytes_per_s=RATES), None, tmp_path, machine=machine)
    assert profile.measurements("read", "anon_2m") == {}


def test_other_pages_than_asked_for_and_refused_pinning_are_warnings(tmp_path: Path) -> None:
    lab = FakeLab(bytes_per_s=RATES, given_pages="anon_4k", refuses_pinning=True)
    text = " ".join(run(lab, None, tmp_path).warnings)
    assert "anon_2m pages were asked for, anon_4k were given" in text
    assert "could not be pinned" in text


def test_an_interrupt_in_the_engine_stage_keeps_the_bandwidth(tmp_path: Path) -> None:
    def interrupted(settings: RunSettings) -> float:
        raise KeyboardInterrupt

    kept: list[MachineProfile] = []
    with pytest.raises(KeyboardInterrupt):
        run(
            FakeLab(bytes_per_s=RATES),
            FakeRunner(seconds_per_step=interrupted),
            tmp_path,
            keep=lambda profile, _: kept.append(profile),
        )
    assert len(kept) == 1
    assert kept[0].engine is None
    assert any("interrupted" in w for w in kept[0].warnings)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_while_bandwidth_is_measured_keeps_nothing(tmp_path: Path) -> None:
    kept: list[MachineProfile] = []
    lab = FakeLab(bytes_per_s=RATES, interrupt_after=5)
    with pytest.raises(KeyboardInterrupt):
        run(lab, None, tmp_path, keep=lambda profile, _: kept.append(profile))
    assert kept == []
    assert lab.now_open == 0


def test_the_engine_is_measured_at_six_counts_at_most_ends_included() -> None:
    assert engine_thread_counts((1, 2, 3)) == (1, 2, 3)
    chosen = engine_thread_counts((1, 2, 3, 4, 5, 6, 7, 8, 10, 14, 18, 23, 30, 39, 50, 64))
    assert len(chosen) <= 6
    assert chosen[0] == 1
    assert chosen[-1] == 64
