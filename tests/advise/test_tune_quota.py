"""A container that may use four CPUs of eight, as a newcomer would meet it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import GB, build_engine, build_machine, build_profile
from fake_machine import FakeMachine, build_server

from cpubound.cli import main
from cpubound.profile.file import save_profile

Run = Callable[..., str]


def make_v2(folder: Path) -> FakeMachine:
    """Eight cores; the quota stands two levels above the process's own group."""
    fake = build_server(folder, packages=1, cores=8, threads=1)
    fake.write("/proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw")
    fake.write("/proc/self/cgroup", "0::/pod/box/main")
    fake.write("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory")
    fake.write("/sys/fs/cgroup/pod/cpu.max", "400000 100000")
    fake.write("/sys/fs/cgroup/pod/box/main/cpu.max", "max 100000")
    return fake


def make_v1(folder: Path) -> FakeMachine:
    fake = build_server(folder, packages=1, cores=8, threads=1)
    fake.write(
        "/proc/self/mountinfo",
        "30 1 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct",
    )
    fake.write("/proc/self/cgroup", "3:cpu,cpuacct:/docker/abc")
    fake.write("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "400000")
    fake.write("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000")
    return fake


@pytest.fixture(params=[make_v2, make_v1], ids=["cgroup v2", "cgroup v1"])
def sysroot(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    make: Callable[[Path], FakeMachine] = request.param
    return make(tmp_path / "root").folder


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line with a profile that was made on all eight CPUs."""
    monkeypatch.setenv("CPUBOUND_HOME", str(tmp_path / "home"))
    counts = (1, 2, 3, 5, 8)
    profile = build_profile(
        {t: 10.0 * t * GB for t in counts},
        build_engine({name: {t: 9.0 * t * GB for t in counts} for name in ("Q4_K", "Q6_K")}),
        machine=build_machine(8),
    )
    save_profile(profile, tmp_path / "home" / "profile.json")

    def call(*arguments: object) -> str:
        assert main([str(argument) for argument in arguments]) == 0
        return capsys.readouterr().out

    return call


def test_doctor_says_that_four_threads_can_run(run: Run, sysroot: Path) -> None:
    document = json.loads(run("doctor", "--sysroot", sysroot, "--json", "-"))
    assert (document["quota_cpus"], document["effective_cpus"]) == (4.0, 4)
    finding = next(f for f in document["findings"] if f["code"] == "quota-below-cpus")
    assert "-t 4" in finding["remedy"]


def test_tune_takes_four_threads_though_the_profile_was_made_with_eight(
    run: Run, sysroot: Path
) -> None:
    document = json.loads(run("tune", "llama-3.1-8b", "--sysroot", sysroot, "--json", "-"))
    r = document["recommendation"]
    assert (r["threads"], r["batch_threads"]) == (4, 4)
    assert "-t 4 -tb 4" in r["commands"]["llama-server"]
    assert "quota-below-cpus" in {finding["code"] for finding in document["findings"]}
    # Four was not measured: its rate lies between those of three and five.
    rates = {row["threads"]: row["tokens_per_s"] for row in document["table"]}
    assert rates[3] < rates[4]
    assert max(rates) == 4


def test_tune_says_that_the_default_would_stall(run: Run, sysroot: Path) -> None:
    text = run("tune", "llama-3.1-8b", "--sysroot", sysroot)
    assert "4 CPUs can run at once now (a quota of 4); the profile was made with 8" in text
    assert "more threads than the 4 that can run" in " ".join(text.split())


def test_without_a_quota_all_eight_are_used(run: Run, tmp_path: Path) -> None:
    root = build_server(tmp_path / "free", packages=1, cores=8, threads=1).folder
    document = json.loads(run("tune", "llama-3.1-8b", "--sysroot", root, "--json", "-"))
    assert document["recommendation"]["threads"] == 8
    assert not any("can run at once now" in r for r in document["recommendation"]["reasons"])
