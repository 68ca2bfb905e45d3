from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import msgspec
import pytest
from builders import GB, build_engine, build_machine, build_profile
from fakes import FakeRunner, tiny_model

from cpubound import api
from cpubound.advise.tune import Advice
from cpubound.advise.tune.session import Session, advise, commands_of
from cpubound.advise.tune.values import Verified
from cpubound.advise.tune.verify import MIN_ROUNDS, plan_candidates, verify
from cpubound.engine.values import RunSettings
from cpubound.errors import EngineCrashed
from cpubound.report.advice import advice_text
from cpubound.setting import Setting

ATTENTION = {("f16", "f16", True): 4.0 * GB, ("f16", "f16", False): 8.0 * GB}
RATES = {"Q8_0": {1: 10.0 * GB, 2: 20.0 * GB, 4: 40.0 * GB}}


def make_session(**machine: Any) -> Session:
    profile = build_profile(
        {1: 25.0 * GB, 2: 40.0 * GB, 4: 50.0 * GB},
        build_engine(RATES, attention=ATTENTION),
        machine=build_machine(4, **machine),
    )
    counts = tuple(t for t in (1, 2, 4) if t <= profile.machine.effective_cpus)
    return Session(profile=profile, spec=tiny_model("Q8_0"), thread_counts=counts)


def advise_of(session: Session, depth: int = 1024) -> Advice:
    return advise(
        session,
        lambda threads: tuple(range(threads)),
        depth_tokens=depth,
        kv_options=[("f16", "f16")],
        model_path="m.gguf",
    )


def seconds_of(settings: RunSettings) -> float:
    """Twice the threads, half the time; flash-attention costs a fifth."""
    return (1.2 if settings.setting.flash_attn else 1.0) / settings.setting.threads


def test_the_choice_its_neighbours_and_the_defaults_run_once_each() -> None:
    session = make_session()
    candidates, left_out = plan_candidates(advise_of(session), session.predict)
    found = {(c.setting.threads, c.setting.flash_attn): c.names for c in candidates}
    assert found == {
        (4, False): ("tune",),
        (2, False): ("fewer threads", "llama-cpp-python"),
        (4, True): ("flash-attention on", "llama.cpp", "Ollama"),
    }
    assert left_out == ()
    assert candidates[0].names == ("tune",)


def test_defaults_above_the_effective_cpus_are_left_out_and_said_to_be() -> None:
    session = make_session(effective_cpus=2, quota_cpus=2.0)
    candidates, left_out = plan_candidates(advise_of(session), session.predict)
    assert max(c.setting.threads for c in candidates) == 2
    assert left_out == (
        "llama.cpp's default (4 threads on 2 CPUs)",
        "Ollama's default (4 threads on 2 CPUs)",
    )


def test_the_gain_over_each_setting_is_what_the_runs_gave() -> None:
    session, runner = make_session(), FakeRunner(seconds_per_step=seconds_of)
    found = verify(advise_of(session), session.predict, runner, "m.gguf", seconds=0.0, seed=1)
    gains = {name: row.gain for row in found.rows for name in row.names}
    assert found.rounds == MIN_ROUNDS
    assert gains["tune"] == pytest.approx(0)
    assert gains["llama.cpp"] == gains["Ollama"] == pytest.approx(0.2)
    assert gains["llama-cpp-python"] == pytest.approx(1.0)
    assert found.rows[0].names == ("tune",)
    assert all(len(row.runs_s) == MIN_ROUNDS for row in found.rows)
    text = advice_text(msgspec.structs.replace(advise_of(session), verification=found))
    assert "Confirmed: nothing that ran was faster" in text


def test_a_choice_that_is_not_the_fastest_is_shown_to_be_so() -> None:
    session = make_session()
    runner = FakeRunner(seconds_per_step=lambda s: float(s.setting.threads))
    advice = advise_of(session)
    found = verify(advice, session.predict, runner, "m.gguf", seconds=0.0, seed=1)
    assert "llama-cpp-python" in found.rows[0].names
    assert found.rows[0].gain == pytest.approx(-0.5)
    text = advice_text(msgspec.structs.replace(advice, verification=found))
    assert "choice −50 % [−50 %, −50 %]   (llama-cpp-python)" in text
    assert "Not confirmed: 2 threads, flash-attn off was 2.00 times as fast" in text
    assert max(map(len, text.split("\n\n")[1].splitlines())) <= 100


def test_the_commands_are_those_of_what_ran_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session()
    runner = FakeRunner(
        seconds_per_step=lambda s: float(s.setting.threads + 4 * (not s.setting.flash_attn))
    )
    monkeypatch.setattr(
        "cpubound.api.advising.engine_with", lambda *_: nullcontext((runner, "m.gguf"))
    )
    monkeypatch.setattr("cpubound.machine.read.read_machine", lambda: session.profile.machine)

    def text_of(seconds: float | None) -> str:
        advice = api.tune(
            session.spec, depth=1024, kv_type="f16", profile=session.profile,
            verify_seconds=seconds, model_path="m.gguf", seed=1,
        )  # fmt: skip
        return advice_text(advice)

    assert "llama-server -m m.gguf -t 4 -tb 4 -fa off" in text_of(None)
    text = text_of(0.0)
    assert "Not confirmed: 4 threads, flash-attn on" in text
    assert "llama-server -m m.gguf -t 4 -tb 4 -fa on" in text
    assert "flash_attn=True" in text
    assert "-fa off" not in text


@pytest.mark.parametrize("mmap", [True, False])
def test_a_command_maps_the_file_as_the_run_did(mmap: bool) -> None:
    session = make_session()
    advice = advise_of(session)
    unmapped = msgspec.structs.replace(advice.recommendation, load_mode="none")
    advice = msgspec.structs.replace(advice, recommendation=unmapped)
    row = Verified(
        setting=Setting(threads=2),
        names=("fewer threads",),
        mmap=mmap,
        predicted_tokens_per_s=1.0,
        tokens_per_s=2.0,
        gain=-0.5,
        gain_low=-0.5,
        gain_high=-0.5,
        runs_s=(),
    )
    lines = commands_of(session, lambda threads: tuple(range(threads)), advice, row, "m.gguf")
    assert lines["llama-cli"].startswith("llama-cli -m m.gguf -t 2 -tb 4 -fa on -c ")
    assert ("-lm none" in lines["llama-cli"]) is not mmap
    assert ("-lm" in lines["llama-bench"]) is not mmap


def test_every_run_is_at_the_depth_asked_for_and_counts_are_within_the_machine() -> None:
    session, runner = make_session(), FakeRunner(seconds_per_step=seconds_of)
    verify(advise_of(session), session.predict, runner, "m.gguf", seconds=0.0, seed=1)
    assert {run.setting.depth_tokens for run in runner.runs} == {1024}
    assert {run.setting.threads for run in runner.runs} == {2, 4}
    assert len({run.setting.n_ctx for run in runner.runs}) == 1


def test_a_crash_of_the_engine_is_not_hidden() -> None:
    session = make_session()
    runner = FakeRunner(seconds_per_step=seconds_of, crash_if=lambda s: s.setting.flash_attn)
    with pytest.raises(EngineCrashed):
        verify(advise_of(session), session.predict, runner, "m.gguf", seconds=0.0, seed=1)


def test_of_several_faster_settings_the_fastest_shown_is_recommended() -> None:
    """The gain is of paired rounds, so that noise may order it otherwise than the rates."""
    session = make_session()
    advice = advise_of(session)
    runner = FakeRunner(seconds_per_step=lambda s: float(s.setting.threads))
    found = verify(advice, session.predict, runner, "m.gguf", seconds=0.0, seed=1)
    by_name = {name: row for row in found.rows for name in row.names}
    replace = msgspec.structs.replace
    best = replace(by_name["llama-cpp-python"], tokens_per_s=179.0, gain=-0.37, gain_high=-0.31)
    other = replace(by_name["llama.cpp"], tokens_per_s=158.0, gain=-0.52, gain_high=-0.32)
    rows = (best, other, replace(by_name["tune"], tokens_per_s=84.0))
    text = advice_text(replace(advice, verification=replace(found, rows=rows)))
    assert "Not confirmed: 2 threads, flash-attn off was 1.59 times as fast" in text
