"""cpubound.machine.modules: memory modules from the three places that may tell."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_machine import FakeMachine
from smbios_bytes import END, bios, device

from cpubound.machine.modules import EDAC_FOLDER, SMBIOS_TABLE, UDEV_RECORD, read_memory_modules
from cpubound.machine.values import MemoryModule

UDEV = """\
I:4711
E:MEMORY_ARRAY_NUM_DEVICES=3
E:MEMORY_DEVICE_0_DATA_WIDTH=64
E:MEMORY_DEVICE_0_SIZE=17179869184
E:MEMORY_DEVICE_0_LOCATOR=DIMM\\x20A1
E:MEMORY_DEVICE_0_BANK_LOCATOR=BANK 0
E:MEMORY_DEVICE_0_TYPE=DDR4
E:MEMORY_DEVICE_0_SPEED_MTS=3200
E:MEMORY_DEVICE_0_CONFIGURED_SPEED_MTS=2933
E:MEMORY_DEVICE_1_PRESENT=0
E:MEMORY_DEVICE_2_SIZE=17179869184
"""
SYSTEMD_MODULE = MemoryModule(
    locator="DIMM A1",
    type="DDR4",
    size_bytes=2**34,
    transfers_per_s=2_933_000_000,
    rated_transfers_per_s=3_200_000_000,
    width_bits=64,
    channel="A",
)


@pytest.fixture
def fake(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def add_edac(fake: FakeMachine, slot: str, location: str, mebibytes: int) -> None:
    folder = f"{EDAC_FOLDER}/mc0/{slot}"
    fake.write(f"{folder}/size", mebibytes)
    fake.write(f"{folder}/dimm_location", location)
    fake.write(f"{folder}/dimm_mem_type", "Registered-DDR5")
    fake.write(f"{folder}/dimm_label", f"CPU0 {slot}")


def test_nothing_to_read_is_no_modules(fake: FakeMachine) -> None:
    assert read_memory_modules(fake.root) == ()


def test_the_smbios_table_comes_first(fake: FakeMachine) -> None:
    fake.write(SMBIOS_TABLE, bios() + device(locator="DIMM_B1") + END)
    fake.write(UDEV_RECORD, UDEV)
    assert [module.locator for module in read_memory_modules(fake.root)] == ["DIMM_B1"]


def test_what_systemd_noted_is_read_without_privileges(fake: FakeMachine) -> None:
    fake.write(UDEV_RECORD, UDEV)
    first, second = read_memory_modules(fake.root)
    assert first == SYSTEMD_MODULE
    assert second == MemoryModule(locator=None, type=None, size_bytes=2**34, transfers_per_s=None)


@pytest.mark.parametrize("text", ["", "E:", "E:MEMORY_ARRAY_NUM_DEVICES=99999999999", "\0=\0"])
def test_a_record_that_says_nothing_of_memory_is_no_modules(fake: FakeMachine, text: str) -> None:
    fake.write(UDEV_RECORD, text)
    assert read_memory_modules(fake.root) == ()


def test_error_counters_know_the_channels(fake: FakeMachine) -> None:
    add_edac(fake, "dimm0", "channel 0 slot 0 ", 32768)
    add_edac(fake, "dimm1", "channel 1 slot 0 ", 32768)
    add_edac(fake, "dimm2", "channel 1 slot 1 ", 0)
    modules = read_memory_modules(fake.root)
    assert [(module.channel, module.type, module.size_bytes) for module in modules] == [
        ("MC0 0", "DDR5", 2**35),
        ("MC0 1", "DDR5", 2**35),
    ]


def test_a_counter_of_ranks_is_understood(fake: FakeMachine) -> None:
    add_edac(fake, "rank3", "csrow 0 channel 1 ", 8192)
    (module,) = read_memory_modules(fake.root)
    assert module.channel == "MC0 1"
