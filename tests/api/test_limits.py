"""Limits are those of now: affinity, quota and memory as they are when a verb is called."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from builders import GB, build_engine, build_machine, build_profile
from fakes import FakeRunner

from cpubound import api
from cpubound.advise.tune.verify import verify
from cpubound.api.limits import current_profile, machine_now, refuse_too_big
from cpubound.engine.pauses import PauseCounter
from cpubound.errors import MachineError, UsageError
from cpubound.machine.read import read_machine
from cpubound.machine.values import Machine
from cpubound.profile.file import save_profile
from cpubound.profile.values import MachineProfile
from cpubound.validation.cells import CellToRun, run_cells

MODEL = "llama-3.2-1b:Q4_0"
Run = Callable[..., tuple[int, str, str]]
# Tokens of 10 ms, each fourth with a pause of 100 ms: 35 ms a token by the clock.
PAUSED = FakeRunner(seconds_per_step=lambda _: 0.010, jitter=(0.0, 0.0, 0.0, 10.0))


def profile_of(machine: Machine, counts: tuple[int, ...] = (1, 2, 4)) -> MachineProfile:
    engine = build_engine({name: {t: 9.0 * t * GB for t in counts} for name in ("Q4_0", "Q6_K")})
    return build_profile({t: 10.0 * t * GB for t in counts}, engine, machine=machine)


@pytest.fixture
def four(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A profile of four CPUs, made without limits; call it to set the limits of now."""
    monkeypatch.setenv("CPUBOUND_HOME", str(tmp_path))
    save_profile(profile_of(build_machine(4)), tmp_path / "profile.json")

    def now(**limits: object) -> None:
        machine = msgspec.structs.replace(build_machine(4), **limits)
        monkeypatch.setattr("cpubound.machine.read.read_machine", lambda: machine)

    return now


def counter() -> PauseCounter:
    counts = iter([(0, 0), (100, 100)])
    return PauseCounter(lambda: next(counts))


def predicted(invoke: Run, *arguments: str) -> dict[str, object]:
    code, out, err = invoke("predict", MODEL, "--json", "-", *arguments)
    assert code == 0, err
    found: dict[str, object] = json.loads(out)["predictions"][0]
    return found


def rate(invoke: Run, threads: int) -> float:
    return float(str(predicted(invoke, "--threads", str(threads))["tokens_per_s"]))


def test_predict_takes_no_more_threads_than_may_run_now(four, invoke: Run) -> None:
    four(allowed_cpus=(2,), effective_cpus=1)
    assert predicted(invoke)["threads"] == 1
    _, _, err = invoke("predict", MODEL)
    assert err == "Note: 1 CPU can run at once now; the profile was made with 4\n"


def test_more_threads_than_cpus_now_are_not_measured(four) -> None:
    four(allowed_cpus=(2,), effective_cpus=1)
    for run in (
        lambda: api.validate([MODEL], threads=(2,)),
        lambda: api.validate_prompts([MODEL], (8,), threads=(2,)),
        lambda: api.breakdown(MODEL, threads=2),
        lambda: api.diagnose_live(MODEL, threads=2),
    ):
        with pytest.raises(UsageError, match="more than the 1 effective"):
            run()


def test_a_quota_of_half_a_cpu_halves_the_speed_and_says_so(four, invoke: Run) -> None:
    four()
    whole = rate(invoke, 1)
    four(quota_cpus=0.5, effective_cpus=1)
    assert rate(invoke, 1) == pytest.approx(whole / 2)
    assert "50% of the time" in str(predicted(invoke)["assumptions"])
    _, _, err = invoke("predict", MODEL)
    assert "0.5 CPUs can run at once now (a quota of 0.5); the profile was made with 4" in err


def test_a_quota_above_the_threads_costs_nothing(four, invoke: Run) -> None:
    four()
    two, all_four = rate(invoke, 2), rate(invoke, 4)
    four(quota_cpus=2.0, effective_cpus=2)
    assert rate(invoke, 2) == pytest.approx(two)
    # Four threads use up in half a period what two CPUs may.
    assert rate(invoke, 4) == pytest.approx(all_four / 2)


def test_the_interval_under_a_quota_holds_what_was_seen_by_the_clock(four, invoke: Run) -> None:
    four()
    whole = rate(invoke, 1)
    four(quota_cpus=0.5, effective_cpus=1)
    found = predicted(invoke, "--threads", "1")
    # 74 tok/s by the clock where the profile said 174 without a quota.
    assert float(str(found["low"])) < 74 / 174 * whole < float(str(found["high"]))


def test_tune_tells_the_speed_by_the_clock(four, invoke: Run) -> None:
    four()
    whole = rate(invoke, 1)
    four(quota_cpus=0.5, effective_cpus=1)
    code, out, err = invoke("tune", MODEL, "--json", "-")
    assert code == 0, err
    advice = json.loads(out)
    assert advice["recommendation"]["threads"] == 1
    assert advice["table"][0]["tokens_per_s"] == pytest.approx(whole / 2)


def test_validate_observes_the_speed_by_the_clock(four) -> None:
    four(quota_cpus=0.5, effective_cpus=1)
    cell = CellToRun(
        prediction=api.predict(MODEL, threads=1),
        model_path="m", bandwidth_bytes_per_s=None, tokens=48,
    )  # fmt: skip
    observed = run_cells(
        [cell], PAUSED, None, seconds=0, open_bytes=0,
        progress=lambda *_: None, count_pauses=counter,
    )  # fmt: skip
    assert observed.cells[0].observed_tokens_per_s == pytest.approx(1 / 0.035)
    assert "pauses included" in observed.warnings[0]


def test_tune_verifies_by_the_clock(four) -> None:
    four(quota_cpus=0.5, effective_cpus=1)
    found = verify(
        api.tune(MODEL),
        lambda setting: api.predict(MODEL, threads=setting.threads),
        PAUSED,
        "m",
        seconds=0,
        seed=0,
        count_pauses=counter,
    )
    assert found.rows[0].tokens_per_s == pytest.approx(1 / 0.035)
    assert "pauses included" in found.warnings[0]


def test_what_does_not_fit_into_todays_memory_is_not_run(four) -> None:
    four(memory_limit_bytes=256 * 2**20)
    for run in (
        lambda: api.breakdown(MODEL),
        lambda: api.diagnose_live(MODEL),
        lambda: api.validate([MODEL]),
        lambda: api.tune(MODEL, verify_seconds=1),
    ):
        with pytest.raises(MachineError, match="of 268 MB that are available now"):
            run()
    with pytest.raises(MachineError, match="does not fit into memory"):
        api.tune(MODEL)


def test_memory_that_other_programs_hold_counts_for_a_run_but_not_for_advice() -> None:
    machine = build_machine(2, memory_available_bytes=GB // 2)
    traffic = api.inspect_model(MODEL)
    with pytest.raises(MachineError, match="available now"):
        refuse_too_big(machine, traffic)
    refuse_too_big(machine, traffic, now=False)


def test_a_profile_of_another_machine_keeps_its_limits(tmp_path: Path) -> None:
    save_profile(profile_of(build_machine(4)), tmp_path / "other.json")
    assert machine_now(profile_of(build_machine(4))) is None
    assert current_profile(tmp_path / "other.json").machine == build_machine(4)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity here")
def test_taskset_is_seen_by_a_new_process(tmp_path: Path) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    save_profile(profile_of(read_machine(), (1, 2)), tmp_path / "profile.json")
    done = subprocess.run(
        [sys.executable, "-m", "cpubound", "predict", MODEL, "--json", "-"],
        capture_output=True, text=True, check=True,
        env={**os.environ, "CPUBOUND_HOME": str(tmp_path)},
        preexec_fn=lambda: os.sched_setaffinity(0, cpus[:1]),
    )  # fmt: skip
    assert json.loads(done.stdout)["predictions"][0]["threads"] == 1


def test_a_limit_on_this_process_is_a_memory_limit() -> None:
    resource = pytest.importorskip("resource")
    code = "from cpubound.machine.read import read_machine as r; print(r().memory_limit_bytes)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29)),
    )  # fmt: skip
    assert int(done.stdout) <= 2**29
