"""cpubound.machine.firmware: memory devices in SMBIOS tables."""

from __future__ import annotations

import pytest
from builders import build_machine
from hypothesis import given
from hypothesis import strategies as st
from smbios_bytes import EMPTY, END, LPDDR5, bios, device

from cpubound.machine.firmware import parse_memory_modules
from cpubound.machine.values import MemoryModule


def test_a_module_is_read() -> None:
    assert parse_memory_modules(bios() + device() + END) == (
        MemoryModule(
            locator="DIMM_A1",
            type="DDR5",
            size_bytes=16 * 2**30,
            transfers_per_s=5_600_000_000,
            rated_transfers_per_s=5_600_000_000,
            width_bits=64,
            channel="A",
        ),
    )


def test_an_empty_slot_is_left_out() -> None:
    assert parse_memory_modules(device(size=0, kind=EMPTY) + END) == ()


def test_the_chip_that_holds_the_firmware_is_no_memory() -> None:
    assert parse_memory_modules(device(kind=0x09, locator="SYSTEM ROM") + END) == ()


def test_a_module_of_32_gib_or_more_gives_its_size_elsewhere() -> None:
    (module,) = parse_memory_modules(device(size=0x7FFF, extended_size=65536) + END)
    assert module.size_bytes == 64 * 2**30


def test_a_size_may_be_in_kibibytes() -> None:
    (module,) = parse_memory_modules(device(size=0x8000 | 512) + END)
    assert module.size_bytes == 512 * 2**10


def test_a_speed_above_65_gigatransfers_is_given_elsewhere() -> None:
    (module,) = parse_memory_modules(
        device(rated=0xFFFF, configured=0xFFFF, extended_speed=70_000) + END
    )
    assert module.transfers_per_s == 70_000_000_000


def test_an_unknown_configured_speed_falls_back_to_the_rated_one() -> None:
    (module,) = parse_memory_modules(device(configured=0, rated=3200) + END)
    assert module.transfers_per_s == 3_200_000_000


def test_a_table_cut_anywhere_gives_only_whole_modules() -> None:
    table = bios() + device(locator="DIMM_A1") + device(locator="DIMM_B1") + END
    whole = parse_memory_modules(table)
    assert len(whole) == 2
    for length in range(len(table)):
        cut = parse_memory_modules(table[:length])
        assert cut == whole[: len(cut)]


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    parse_memory_modules(data)
    parse_memory_modules(bytes([17, 0x28]) + data)


def modules(*bodies: bytes) -> tuple[MemoryModule, ...]:
    return parse_memory_modules(b"".join(bodies) + END)


def test_two_channels_of_ddr5_5600_give_89_6_gigabytes_a_second() -> None:
    machine = build_machine(
        memory_modules=modules(device(locator="DIMM_A1"), device(locator="DIMM_B1"))
    )
    assert machine.theoretical_bytes_per_s == pytest.approx(89.6e9)


def test_two_modules_of_one_channel_share_it() -> None:
    machine = build_machine(
        memory_modules=modules(device(locator="DIMM_A1"), device(locator="DIMM_A2"))
    )
    assert machine.theoretical_bytes_per_s == pytest.approx(44.8e9)


def test_soldered_devices_each_have_their_channel() -> None:
    part = device(kind=LPDDR5, locator="Motherboard", width=32, configured=6400)
    machine = build_machine(memory_modules=modules(part, part, part, part))
    assert machine.theoretical_bytes_per_s == pytest.approx(102.4e9)


def test_unknown_channels_or_no_modules_leave_the_bandwidth_unknown() -> None:
    pair = modules(device(locator="SODIMM 1"), device(locator="SODIMM 2"))
    assert build_machine(memory_modules=pair).theoretical_bytes_per_s is None
    assert build_machine().theoretical_bytes_per_s is None
