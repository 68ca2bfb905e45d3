"""cpubound.machine.portable: machines that are not Linux."""

from __future__ import annotations

import platform
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from cpubound.machine.portable import read_portable
from cpubound.machine.read import read_machine


def refuse(*arguments: Any, **names: Any) -> Any:
    raise NotImplementedError("not on this platform")


@pytest.fixture
def macos(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 12)
    monkeypatch.setattr(psutil.Process, "cpu_affinity", refuse, raising=False)
    return monkeypatch


def test_what_psutil_gives_is_taken_and_the_rest_is_unknown(macos: pytest.MonkeyPatch) -> None:
    memory = SimpleNamespace(total=2**35, available=2**34)
    macos.setattr(psutil, "virtual_memory", lambda: memory)
    machine = read_machine()
    assert machine.operating_system == "Darwin"
    assert machine.architecture == "arm64"
    assert machine.allowed_cpus == machine.online_cpus == tuple(range(12))
    assert (machine.physical_cores, machine.threads_per_core) == (12, 1)
    assert (machine.memory_bytes, machine.memory_available_bytes) == (2**35, 2**34)
    assert machine.effective_cpus == 12
    assert machine.packages is machine.quota_cpus is machine.governor is None
    assert machine.caches == machine.core_kinds == ()


def test_an_affinity_that_the_platform_tells_is_heeded(macos: pytest.MonkeyPatch) -> None:
    macos.setattr(psutil.Process, "cpu_affinity", lambda self: [1, 3], raising=False)
    machine = read_portable()
    assert machine.allowed_cpus == (1, 3)
    assert machine.effective_cpus == 2


def test_a_psutil_that_refuses_everything_breaks_nothing(macos: pytest.MonkeyPatch) -> None:
    macos.setattr(psutil, "cpu_count", lambda logical=True: None)
    macos.setattr(psutil, "virtual_memory", refuse)
    macos.setattr(psutil, "sensors_battery", refuse, raising=False)
    machine = read_portable()
    assert machine.online_cpus == (0,)
    assert machine.memory_bytes is machine.on_battery is machine.physical_cores is None


@pytest.mark.parametrize("plugged", [True, False])
def test_the_battery_is_asked(macos: pytest.MonkeyPatch, plugged: bool) -> None:
    battery = SimpleNamespace(power_plugged=plugged)
    macos.setattr(psutil, "sensors_battery", lambda: battery, raising=False)
    assert read_portable().on_battery is not plugged
