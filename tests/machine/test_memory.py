"""cpubound.machine.memory: its size, pages, nodes and modules."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import build_machine
from fake_machine import NODE, FakeMachine, build_server
from hypothesis import given
from hypothesis import strategies as st
from smbios_bytes import EMPTY, END, LPDDR5, bios, device

from cpubound.machine.cpu import read_cpuinfo
from cpubound.machine.files import Root
from cpubound.machine.memory import (
    EDAC_FOLDER,
    SMBIOS_ENTRIES,
    SMBIOS_TABLE,
    UDEV_RECORD,
    find_channel,
    parse_memory_modules,
    read_memory,
    read_memory_modules,
    read_numa_nodes,
)
from cpubound.machine.topology import Topology, read_topology
from cpubound.machine.values import MemoryModule, NumaNode

MEMINFO = """\
MemTotal:       32489496 kB
MemFree:        28118332 kB
MemAvailable:   28934524 kB
HugePages_Total:      12
HugePages_Free:       10
Hugepagesize:       2048 kB
"""

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


def test_meminfo_is_in_kibibytes(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/proc/meminfo", MEMINFO)
    memory = read_memory(fake.root, "x86_64")
    assert memory.total_bytes == 32489496 * 1024
    assert memory.available_bytes == 28934524 * 1024
    assert memory.huge_page_size_bytes == 2**21
    assert (memory.huge_pages_total, memory.huge_pages_free) == (12, 10)


def test_without_meminfo_the_nodes_are_added_up(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.add_node(0, [0], 1024)
    fake.add_node(1, [], 2048)
    fake.add_node(2, [], None)
    assert read_memory(fake.root, "x86_64").total_bytes == 3 * 2**20


def test_nothing_known_is_none(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/proc/meminfo", "MemTotal: lots")
    memory = read_memory(fake.root, "aarch64")
    assert memory.total_bytes is memory.available_bytes is memory.page_size_bytes is None
    assert memory.transparent_huge_pages is None


@pytest.mark.parametrize("mode", ["always", "madvise", "never"])
def test_the_mode_of_transparent_huge_pages_stands_in_brackets(tmp_path: Path, mode: str) -> None:
    fake = FakeMachine(tmp_path)
    modes = "always madvise never".replace(mode, f"[{mode}]")
    fake.write("/sys/kernel/mm/transparent_hugepage/enabled", modes)
    assert read_memory(fake.root, "x86_64").transparent_huge_pages == mode


def test_the_page_size_of_a_snapshot_is_noted_or_follows_from_the_architecture(
    tmp_path: Path,
) -> None:
    fake = FakeMachine(tmp_path)
    assert read_memory(fake.root, "x86_64").page_size_bytes == 4096
    fake.write("/proc/hwloc-nofile-info", "PageSize: 65536")
    assert read_memory(fake.root, "ppc64").page_size_bytes == 65536


def test_the_live_page_size_is_a_power_of_two() -> None:
    size = read_memory(Root(), "x86_64").page_size_bytes
    assert size is not None
    assert size >= 4096
    assert size & (size - 1) == 0


def read(fake: FakeMachine) -> Topology:
    return read_topology(fake.root, read_cpuinfo(fake.root))


def nodes_of(fake: FakeMachine, memory_bytes: int | None = None) -> tuple[NumaNode, ...]:
    return read_numa_nodes(fake.root, read(fake), memory_bytes)


def test_nodes_without_cpus_or_memory_are_listed(tmp_path: Path) -> None:
    fake = build_server(tmp_path, packages=1, cores=2, threads=1)
    fake.add_node(0, [0, 1], 0)
    fake.add_node(8, [], 1024)
    fake.write(f"{NODE}/has_cpu", "0")
    assert nodes_of(fake) == (
        NumaNode(id=0, cpus=(0, 1), memory_bytes=0),
        NumaNode(id=8, cpus=(), memory_bytes=2**20),
    )


def test_a_node_mask_without_a_list_is_read_and_cut_to_real_cpus(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.set_cpus("0-1")
    fake.write(f"{NODE}/node0/cpumap", "ffffffff")
    assert nodes_of(fake)[0].cpus == (0, 1)


def test_a_node_that_claims_the_cpus_of_another_is_left_out(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)  # a firmware that lists every CPU in every node
    fake.set_cpus("0-3")
    fake.add_node(0, range(4), 2048)
    fake.add_node(1, range(4), 1024)
    fake.add_node(2, [], 4096)
    assert [node.id for node in nodes_of(fake)] == [0, 2]


def test_the_memory_of_graphics_cards_is_no_node(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.set_cpus("0")
    fake.add_node(0, [0], 2048)
    fake.add_node(255, [], 2048)
    fake.write("/proc/driver/nvidia/gpus/0004:04:00.0/numa_status", "Node: 255\nNUMA: online")
    assert [node.id for node in nodes_of(fake)] == [0]


def test_a_kernel_without_numa_has_one_node_with_everything(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.set_cpus("0-1")
    assert nodes_of(fake, 123) == (NumaNode(id=0, cpus=(0, 1), memory_bytes=123),)


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


@pytest.mark.parametrize(
    ("locator", "bank", "channel"),
    [
        ("DIMM_A1", "BANK 0", "A"),
        ("DIMM_B2", "BANK 2", "B"),
        ("ChannelA-DIMM0", "BANK 0", "A"),
        ("Controller1-ChannelB-DIMM0", "BANK 3", "CONTROLLER1 B"),
        ("DIMM 0", "P0 CHANNEL C", "P0 C"),
        ("Channel 3", "x", "3"),
        ("P1-DIMMC1", "P1_Node1", "P1 NODE1 C"),
        ("CPU1_DIMM_A1", "NODE 1", "NODE 1 CPU1 A"),
        ("SODIMM 1", "BANK 0", None),
        ("", "", None),
    ],
)
def test_the_channel_is_told_by_the_locator(locator: str, bank: str, channel: str | None) -> None:
    assert find_channel(locator, bank) == channel


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


def test_memory_devices_are_read_from_the_files_of_the_dmi_driver(tmp_path: Path) -> None:
    body = bytearray(0x54)
    body[0:4] = bytes((17, 0x54, 0, 0))
    body[0x0A:0x0C] = (64).to_bytes(2, "little")
    body[0x0C:0x0E] = (16 * 1024).to_bytes(2, "little")
    body[0x10], body[0x12] = 1, 0x22
    body[0x15:0x17] = (4800).to_bytes(2, "little")
    body[0x20:0x22] = (4800).to_bytes(2, "little")
    fake = FakeMachine(tmp_path)
    for number, name in enumerate((b"DIMM_A1", b"DIMM_B1")):
        fake.write(f"{SMBIOS_ENTRIES}/17-{number}/raw", bytes(body) + name + b"\0\0")
    modules = read_memory_modules(fake.root)
    assert [(m.locator, m.type, m.size_bytes) for m in modules] == [
        ("DIMM_A1", "DDR5", 2**34),
        ("DIMM_B1", "DDR5", 2**34),
    ]
    assert modules[0].transfers_per_s == 4_800_000_000


def test_kernels_before_3_6_count_rows_of_chips(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write(f"{EDAC_FOLDER}/mc0/csrow0/size_mb", 8192)
    fake.write(f"{EDAC_FOLDER}/mc0/csrow0/mem_type", "Registered-DDR3")
    fake.write(f"{EDAC_FOLDER}/mc0/csrow1/size_mb", 0)
    (module,) = read_memory_modules(fake.root)
    assert (module.type, module.size_bytes, module.channel) == ("DDR3", 2**33, None)
