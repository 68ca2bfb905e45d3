"""cpubound.engine.watch, engine.live and advise.live_rules: watching a run, and what it tells."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import GB, build_engine, build_machine, build_profile
from fakes import FakeRunner, tiny_model

from cpubound.advise.case import Case
from cpubound.advise.diagnose import diagnose_run
from cpubound.advise.diagnosis import Diagnosis
from cpubound.advise.engines import find_engine
from cpubound.advise.live import add_live
from cpubound.advise.live_rules import LIVE_RULES, find_live_findings
from cpubound.advise.values import ERROR, SEVERITIES
from cpubound.cli import main
from cpubound.engine import find_runner, live, watch
from cpubound.engine.live import add_residency, watch_decode
from cpubound.engine.synth import write_model
from cpubound.engine.values import RunSettings
from cpubound.engine.watch import LiveFacts, Watch, live_facts
from cpubound.machine.activity import Activity, Counters, ProcessTime
from cpubound.machine.read import read_machine
from cpubound.profile.file import save_profile
from cpubound.report.diagnosis import diagnosis_document, diagnosis_text
from cpubound.report.live import live_text
from cpubound.setting import Setting

RUNS = ((0.1, 0.1), (0.1, 0.1), (0.125, 0.125), (0.125, 0.125))
START = Counters(
    at_s=100.0,
    machine=Activity(
        steal_s=5.0, total_s=1000.0, throttled_periods=7, throttle_events=1, mean_khz=3e6
    ),
    minor_faults=1000,
    major_faults=10,
    read_bytes=0,
    wait_s=2.0,
    quota_periods=70,
    memory_stall_s=1.0,
    swapped_bytes=0,
)
END = Counters(
    at_s=110.0,
    machine=Activity(
        steal_s=6.0, total_s=1020.0, throttled_periods=17, throttle_events=3, mean_khz=2e6
    ),
    minor_faults=1080,
    major_faults=50,
    read_bytes=8 * 2**20,
    wait_s=3.0,
    quota_periods=170,
    memory_stall_s=1.5,
    swapped_bytes=4096,
)
NOBODY: tuple[dict[tuple[int, float], ProcessTime], ...] = ({}, {})


def facts_of(*samples: Counters, processes: Any = NOBODY) -> LiveFacts:
    return live_facts(RUNS, 2, samples, processes, without={1})


def test_counters_become_what_a_token_or_the_time_had_of_them() -> None:
    facts = facts_of(START, END)
    assert facts.tokens == 8
    assert facts.seconds == 10
    assert facts.tokens_per_s == pytest.approx(1 / 0.1125)
    assert facts.drift == pytest.approx(-0.2)
    assert facts.minor_faults_per_token == 10
    assert facts.major_faults_per_token == 5
    assert facts.storage_bytes_per_token == 2**20
    assert (facts.quota_periods, facts.throttled_periods) == (100, 10)
    assert facts.steal_share == pytest.approx(0.05)
    assert facts.wait_share == pytest.approx(1.0 / 20)
    assert facts.memory_stall_share == pytest.approx(0.05)
    assert facts.swapped_bytes == 4096
    assert facts.throttle_events == 2


def test_clocks_are_taken_from_all_samples() -> None:
    slow = replace(START, machine=Activity(mean_khz=1.5e6))
    facts = facts_of(START, START, slow, slow)
    assert facts.clock_hz == pytest.approx(2.25e9)
    assert facts.clock_drift == pytest.approx(-0.5)


def test_what_is_not_told_stays_unknown() -> None:
    bare = [Counters(at_s=at, machine=Activity()) for at in (0.0, 10.0)]
    facts = facts_of(*bare)
    unknown = (
        "minor_faults_per_token", "major_faults_per_token", "storage_bytes_per_token",
        "quota_periods", "throttled_periods", "steal_share", "wait_share", "memory_stall_share",
        "swapped_bytes", "throttle_events", "clock_hz", "clock_drift",
    )  # fmt: skip
    assert all(getattr(facts, name) is None for name in unknown)
    assert find_live_findings(facts) == ()


def test_a_counter_that_went_back_is_unknown() -> None:
    assert facts_of(END, replace(START, at_s=120.0)).major_faults_per_token is None


def test_other_programs_are_named_by_the_cpus_they_used() -> None:
    before = {(n, 0.0): ProcessTime(name=f"p{n}", cpu_s=0.0) for n in range(1, 9)}
    after = {(n, 0.0): ProcessTime(name=f"p{n}", cpu_s=float(n)) for n in range(1, 9)}
    facts = facts_of(START, END, processes=(before, after))
    assert list(facts.other_programs) == ["p8", "p7", "p6", "p5", "p4"]
    assert facts.other_cpus == pytest.approx(sum(range(2, 9)) / 10)


def test_a_watch_reads_before_during_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SAMPLE_S", 0.0)
    numbers = count()
    sampled = threading.Event()

    def read() -> Counters:
        number = next(numbers)
        if number == 3:
            sampled.set()
        return Counters(at_s=float(number), machine=Activity())

    with Watch(read=read, read_processes=dict) as seen:
        assert sampled.wait(10)
    assert len(seen.samples) >= 5
    assert [sample.at_s for sample in seen.samples] == sorted(s.at_s for s in seen.samples)
    assert len(seen.processes) == 2


def test_a_watch_ends_when_the_run_fails() -> None:
    seen = Watch(read=lambda: Counters(at_s=0.0, machine=Activity()), read_processes=dict)
    with pytest.raises(KeyboardInterrupt), seen:
        raise KeyboardInterrupt
    assert seen._thread is not None
    assert not seen._thread.is_alive()


@dataclass(kw_only=True)
class FakeLocalRunner(FakeRunner):
    pid: int | None = 42


def watch_fake(seconds: float, ticks: float, **changes: Any) -> tuple[FakeLocalRunner, LiveFacts]:
    runner = FakeLocalRunner(seconds_per_step=lambda _: 0.05)
    clock = count(0.0, ticks)
    arguments: dict[str, Any] = {
        "seconds": seconds,
        "start_watch": lambda pid: Watch(
            read=lambda: Counters(at_s=next(clock), machine=Activity()), read_processes=dict
        ),
        "reference": None,
        "progress": lambda *_: None,
        "clock": lambda: next(clock),
    }
    settings = RunSettings(model_path="m.gguf", setting=Setting(threads=2, flash_attn=False))
    return runner, watch_decode(runner, settings, **{**arguments, **changes})


def test_the_run_that_loads_the_model_is_not_watched() -> None:
    runner, facts = watch_fake(1e-9, 0.0001)
    assert len(runner.runs) == 1 + live.MIN_RUNS
    assert facts.tokens == 20 * live.MIN_RUNS


def test_runs_go_on_until_the_time_is_over() -> None:
    runner, _ = watch_fake(10.0, 1.0)
    assert len(runner.runs) > 1 + live.MIN_RUNS


def test_bandwidth_is_measured_before_and_after() -> None:
    rates = iter([10.0, 12.0, 11.0, 20.0, 22.0, 21.0])
    _, facts = watch_fake(1e-9, 1.0, reference=lambda threads: next(rates))
    assert facts.read_bytes_per_s == pytest.approx(16.0)


def test_the_watch_is_over_the_engines_process() -> None:
    asked: list[int] = []

    def start(pid: int) -> Watch:
        asked.append(pid)
        return Watch(read=lambda: START, read_processes=dict)

    watch_fake(1e-9, 1.0, start_watch=start)
    assert asked == [42]


def test_residency_is_added_from_the_files(tmp_path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"x" * 5000)
    facts = add_residency(QUIET, [str(path)], 5000)
    assert facts.file_bytes == 5000
    assert facts.resident_bytes in (5000, None)


QUIET = LiveFacts(
    threads=4,
    seconds=15.0,
    tokens=300,
    tokens_per_s=20.0,
    drift=0.01,
    minor_faults_per_token=0.1,
    major_faults_per_token=0.0,
    storage_bytes_per_token=0.0,
    file_bytes=5 * 10**9,
    resident_bytes=5 * 10**9,
    quota_periods=150,
    throttled_periods=0,
    steal_share=0.001,
    wait_share=0.005,
    memory_stall_share=0.0,
    swapped_bytes=0,
    throttle_events=0,
    clock_hz=3.5e9,
    clock_drift=-0.02,
    highest_clock_hz=4.5e9,
    other_cpus=0.04,
    other_programs={"desktop": 0.04},
    read_bytes_per_s=38e9,
    calibrated_bytes_per_s=40e9,
)
# Code: facts that give the finding (the numbers of the reports where there are some), and facts
# that nearly do.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # 70B on 64 GB: every token read the disk.
    "not-resident": (
        {
            "major_faults_per_token": 410.0,
            "storage_bytes_per_token": 14e6,
            "resident_bytes": 3 * 10**9,
        },
        {"major_faults_per_token": 0.3, "resident_bytes": 3 * 10**9},
    ),
    "quota-oversubscribed": (
        {"quota_periods": 4567, "throttled_periods": 3115},
        {"quota_periods": 4567, "throttled_periods": 45},
    ),
    "stolen-time": ({"steal_share": 0.1}, {"steal_share": 0.009}),
    "busy-cpus": ({"wait_share": 0.745, "other_cpus": 0.86}, {"wait_share": 0.019}),
    # 50.7 GB/s idle, 14.1 during a package install.
    "less-bandwidth": (
        {"read_bytes_per_s": 14.1e9, "calibrated_bytes_per_s": 50.7e9},
        {"read_bytes_per_s": 46e9, "calibrated_bytes_per_s": 50.7e9},
    ),
    "memory-pressure": (
        {"memory_stall_share": 0.2, "swapped_bytes": 2**30},
        {"memory_stall_share": 0.009, "swapped_bytes": 0},
    ),
    # 400 MHz during generation.
    "throttled": (
        {"clock_hz": 4e8, "highest_clock_hz": 4.5e9},
        {"clock_hz": 2.3e9, "highest_clock_hz": 4.5e9},
    ),
    "busy-machine": (
        {"other_cpus": 0.8, "other_programs": {"apt": 0.8}},
        {"other_cpus": 0.09},
    ),
}


def test_every_rule_has_a_case() -> None:
    assert set(CASES) == set(LIVE_RULES)


@pytest.mark.parametrize("code", CASES)
def test_a_rule_finds_what_was_reported(code: str) -> None:
    found = find_live_findings(msgspec.structs.replace(QUIET, **CASES[code][0]))
    (finding,) = [f for f in found if f.code == code]
    assert finding.severity in SEVERITIES
    assert finding.evidence
    assert finding.remedy
    assert "\n" not in finding.message


@pytest.mark.parametrize("code", CASES)
def test_a_rule_is_silent_when_it_was_nearly_so(code: str) -> None:
    found = find_live_findings(msgspec.structs.replace(QUIET, **CASES[code][1]))
    assert code not in {finding.code for finding in found}


def test_a_quiet_run_finds_nothing() -> None:
    assert find_live_findings(QUIET) == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"clock_drift": -0.3},
        {"throttle_events": 4},
        {"swapped_bytes": 4096},
        {"memory_stall_share": 0.5},
    ],
    ids=lambda c: next(iter(c)),
)
def test_one_sign_is_enough_where_there_are_several(changes: dict[str, Any]) -> None:
    assert len(find_live_findings(msgspec.structs.replace(QUIET, **changes))) == 1


def test_the_program_that_has_the_cpus_is_named() -> None:
    facts = msgspec.structs.replace(
        QUIET, wait_share=0.3, other_cpus=1.0, other_programs={"cc1plus": 0.98, "top": 0.02}
    )
    waiting = next(f for f in find_live_findings(facts) if f.code == "busy-cpus")
    assert "(cc1plus 0.98 CPUs)" in waiting.message
    assert "top" not in waiting.message


def test_reading_the_disk_is_an_error_with_the_bytes() -> None:
    facts = msgspec.structs.replace(QUIET, **CASES["not-resident"][0])
    finding = find_live_findings(facts)[0]
    assert finding.severity == ERROR
    assert finding.evidence["storage_bytes_per_token"] == 14e6
    assert "of the file are not in memory" in finding.message


def diagnosis_at(share_of_prediction: float) -> Diagnosis:
    profile = build_profile(
        {2: 40 * GB}, build_engine({"Q4_0": {2: 20 * GB}}), machine=build_machine(2)
    )
    spec = tiny_model("Q4_0", layers=8, vocabulary_size=32000)
    case = Case(
        spec=spec,
        profile=profile,
        setting=Setting(threads=2),
        engine=find_engine("llama-cpp-python"),
        model_argument="tiny.gguf",
        observed_tokens_per_s=1.0,
    )
    rate = case.prediction.tokens_per_s * share_of_prediction
    return diagnose_run(replace(case, observed_tokens_per_s=rate))


def live_with(code: str) -> LiveFacts:
    return msgspec.structs.replace(QUIET, **CASES[code][0])


class TestDiagnosis:
    def test_a_slow_run_that_was_disturbed_is_explained(self) -> None:
        plain = diagnosis_at(0.05)
        assert plain.gap == "unexplained"
        found = add_live(plain, live_with("less-bandwidth"))
        assert found.gap == "disturbance"
        codes = [finding.code for finding in found.findings]
        assert "less-bandwidth" in codes
        assert "unexplained" not in codes
        assert found.live is not None

    def test_a_slow_run_in_which_nothing_was_seen_stays_unexplained(self) -> None:
        found = add_live(diagnosis_at(0.05), QUIET)
        assert found.gap == "unexplained"
        assert "unexplained" in {finding.code for finding in found.findings}

    def test_other_programs_alone_explain_nothing(self) -> None:
        assert add_live(diagnosis_at(0.05), live_with("busy-machine")).gap == "unexplained"

    @pytest.mark.parametrize(
        ("code", "gap"), [("quota-oversubscribed", "configuration"), ("not-resident", "memory")]
    )
    def test_quota_and_memory_have_their_own_name(self, code: str, gap: str) -> None:
        assert add_live(diagnosis_at(0.05), live_with(code)).gap == gap

    def test_under_a_quota_that_runs_out_memory_is_never_the_limit(self) -> None:
        assert add_live(diagnosis_at(1.0), live_with("quota-oversubscribed")).gap == "configuration"

    def test_a_run_as_predicted_keeps_its_gap(self) -> None:
        plain = diagnosis_at(1.0)
        assert add_live(plain, live_with("stolen-time")).gap == plain.gap

    def test_the_screen_and_the_document_show_what_was_seen(self) -> None:
        found = add_live(diagnosis_at(0.05), live_with("less-bandwidth"))
        text = " ".join(diagnosis_text(found).split())
        assert "300 tokens in 15 s" in text
        assert "memory read 14.1 GB/s (50.7 GB/s when calibrated)" in text
        assert "disturbance" in text
        assert diagnosis_document(found)["live"]["tokens"] == 300


def test_what_is_unknown_is_left_out_of_the_line() -> None:
    bare = LiveFacts(threads=2, seconds=10.0, tokens=50, tokens_per_s=5.0, drift=0.0)
    assert live_text(bare) == "50 tokens in 10 s"


@pytest.mark.parametrize(
    "extra", [("--observed", "3"), ("--batch", "2"), ("--machine", "h100-sxm"), ("--n-ctx", "512")]
)
def test_live_takes_no_rate_of_another_run(
    extra: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", "llama-3.2-1b:Q4_0", "--live", *extra]) == 2
    assert "--live runs one sequence here" in capsys.readouterr().err


def test_seconds_go_with_live(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "llama-3.2-1b:Q4_0", "--observed", "3", "--seconds", "5"]) == 2
    assert "--seconds goes with --live" in capsys.readouterr().err


@pytest.mark.engine
@pytest.mark.skipif(find_runner() is None, reason="llama-cpp-python is not installed")
def test_the_command_runs_a_model_and_says_what_it_saw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("CPUBOUND_HOME", str(home))
    machine = read_machine()
    profile = build_profile({1: 40 * GB}, build_engine({"Q4_0": {1: 20 * GB}}), machine=machine)
    save_profile(profile, home / "profile.json")
    model = tmp_path / "tiny.gguf"
    write_model(tiny_model("Q4_0"), model)
    code = main(
        ["diagnose", str(model), "--live", "--threads", "1", "--seconds", "1", "--json", "-"]
    )
    captured = capsys.readouterr()
    assert code == 0, captured.err
    document = json.loads(captured.out)
    seen = document["live"]
    assert seen["tokens"] > 0
    assert seen["tokens_per_s"] == pytest.approx(document["observed_tokens_per_s"])
    assert seen["read_bytes_per_s"] > 0
    assert seen["file_bytes"] == model.stat().st_size
