"""Main memory: its size and pages, its nodes, and the modules as the firmware tells of them."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cpubound.machine.files import CpuSet, Root, parse_integer, parse_size
from cpubound.machine.topology import Topology
from cpubound.machine.values import MemoryModule, NumaNode

NODE_FOLDER = "/sys/devices/system/node"
SMBIOS_TABLE = "/sys/firmware/dmi/tables/DMI"
SMBIOS_ENTRIES = "/sys/firmware/dmi/entries"
UDEV_RECORD = "/run/udev/data/+dmi:id"
EDAC_FOLDER = "/sys/devices/system/edac/mc"
_FIXED_4K_PAGES = ("x86_64", "i686", "s390x")
_MAX_SLOTS = 1024
_MEMORY_DEVICE = 17
_END_OF_TABLE = 127
_MAX_STRUCTURES = 65_536

# DMTF DSP0134 (System Management BIOS), 7.18.2: memory device type.
_NOT_MAIN_MEMORY = {0x08, 0x09, 0x0A, 0x0B, 0x0C, 0x1F}  # ROM, flash and the like
_MODULE_TYPES = {
    0x12: "DDR",
    0x13: "DDR2",
    0x18: "DDR3",
    0x1A: "DDR4",
    0x1B: "LPDDR",
    0x1C: "LPDDR2",
    0x1D: "LPDDR3",
    0x1E: "LPDDR4",
    0x20: "HBM",
    0x21: "HBM2",
    0x22: "DDR5",
    0x23: "LPDDR5",
    0x24: "HBM3",
}
# "Channel A", "ChannelA-DIMM0", "P0 CHANNEL C", "Controller0-ChannelA-DIMM0"
_CHANNEL_WORD = re.compile(r"channel[ _-]?([a-z]|[0-9]{1,2})(?![a-z])", re.IGNORECASE)
# "DIMM_A1", "DIMM B2", "P1-DIMMC1", "CPU1_DIMM_A1"
_SLOT_LETTER = re.compile(r"dimm[ _-]?([a-z])[0-9]?$", re.IGNORECASE)
_SOCKET_WORD = re.compile(
    r"(?:^|[^a-z])((?:p|cpu[ _-]?|node[ _-]?|controller[ _-]?)[0-9])", re.IGNORECASE
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Memory of the whole machine and the kinds of pages it can be mapped with."""

    total_bytes: int | None
    available_bytes: int | None
    page_size_bytes: int | None
    huge_page_size_bytes: int | None
    huge_pages_total: int | None
    huge_pages_free: int | None
    transparent_huge_pages: str | None


def read_memory(root: Root, architecture: str) -> Memory:
    """Read ``/proc/meminfo`` and the page settings; the nodes' sum if there is no meminfo."""
    fields = root.read_fields("/proc/meminfo")
    total = parse_size(fields.get("MemTotal", ""))
    return Memory(
        total_bytes=_sum_node_memory(root) if total is None else total,
        available_bytes=parse_size(fields.get("MemAvailable", "")),
        page_size_bytes=_read_page_size(root, architecture),
        huge_page_size_bytes=parse_size(fields.get("Hugepagesize", "")),
        huge_pages_total=parse_integer(fields.get("HugePages_Total", "")),
        huge_pages_free=parse_integer(fields.get("HugePages_Free", "")),
        transparent_huge_pages=_read_transparent_huge_pages(root),
    )


def _read_page_size(root: Root, architecture: str) -> int | None:
    if root.is_live:
        try:
            return os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, OSError, ValueError):
            return None
    noted = parse_integer(root.read_fields("/proc/hwloc-nofile-info").get("PageSize", ""))
    if noted is None and architecture in _FIXED_4K_PAGES:
        return 4096
    return noted


def _read_transparent_huge_pages(root: Root) -> str | None:
    text = root.read_text("/sys/kernel/mm/transparent_hugepage/enabled") or ""
    match = re.search(r"\[(\w+)\]", text)
    return match[1] if match else None


def _sum_node_memory(root: Root) -> int | None:
    nodes = root.list_numbers(NODE_FOLDER, "node")
    sizes = [_read_node_memory(root, node) for node in nodes]
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def _read_node_memory(root: Root, node: int) -> int | None:
    """Read the memory of one NUMA node (its meminfo lines begin with ``Node N``)."""
    text = root.read_text(f"{NODE_FOLDER}/node{node}/meminfo") or ""
    match = re.search(r"MemTotal:\s*([0-9]{1,15}\s*[kKMG]?B?)", text)
    return parse_size(match[1]) if match else None


def read_numa_nodes(
    root: Root, topology: Topology, memory_bytes: int | None
) -> tuple[NumaNode, ...]:
    """Read the memory nodes; a kernel without NUMA has one with everything in it.

    Left out are the memory of graphics cards and, as hwloc does, nodes that claim CPUs of
    an earlier one: such a table is wrong.
    """
    nodes = []
    taken: set[int] = set()
    graphics = _read_graphics_nodes(root)
    for number in root.list_numbers(NODE_FOLDER, "node"):
        folder = f"{NODE_FOLDER}/node{number}"
        cpus = root.read_cpu_list(f"{folder}/cpulist")
        if cpus is None:
            cpus = root.read_cpu_mask(f"{folder}/cpumap") or frozenset()
        if number in graphics or taken & cpus:
            continue
        taken |= cpus
        nodes.append(
            NumaNode(
                id=number,
                # s390 names every CPU there could be.
                cpus=tuple(sorted(cpus & topology.present)),
                memory_bytes=_read_node_memory(root, number),
            )
        )
    if nodes:
        return tuple(nodes)
    return (NumaNode(id=0, cpus=tuple(sorted(topology.online)), memory_bytes=memory_bytes),)


def _read_graphics_nodes(root: Root) -> CpuSet:
    """List the nodes that NVIDIA's driver makes of the memory of its cards (POWER, Grace)."""
    folder = "/proc/driver/nvidia/gpus"
    states = [root.read_fields(f"{folder}/{card}/numa_status") for card in root.list_folder(folder)]
    numbers = [parse_integer(state.get("Node", "")) for state in states]
    return frozenset(number for number in numbers if number is not None)


def read_memory_modules(root: Root) -> tuple[MemoryModule, ...]:
    """Read the populated memory slots; empty where nothing tells.

    Asked in turn: the SMBIOS table (only the administrator may), the copy of it that
    systemd keeps for everyone, and the kernel's error counters, which know the channels
    but not the speed.
    """
    table = root.read_bytes(SMBIOS_TABLE) or _join_entries(root)
    return (parse_memory_modules(table) if table else ()) or _read_udev(root) or _read_edac(root)


def _join_entries(root: Root) -> bytes:
    """Put the memory devices together from the files of the dmi-sysfs driver."""
    names = [name for name in root.list_folder(SMBIOS_ENTRIES) if name.startswith("17-")]
    raw = (root.read_bytes(f"{SMBIOS_ENTRIES}/{name}/raw") for name in names[:_MAX_SLOTS])
    return b"".join(content for content in raw if content)


def _read_udev(root: Root) -> tuple[MemoryModule, ...]:
    """Read the properties that systemd's dmi_memory_id stores (``MEMORY_DEVICE_0_SIZE=…``)."""
    properties: dict[str, str] = {}
    for line in (root.read_text(UDEV_RECORD) or "").splitlines():
        key, _, value = line.removeprefix("E:").partition("=")
        properties[key] = value
    slots = range(min(parse_integer(properties.get("MEMORY_ARRAY_NUM_DEVICES", "")) or 64, 1024))
    modules = (_udev_module(properties, f"MEMORY_DEVICE_{slot}_") for slot in slots)
    return tuple(module for module in modules if module is not None)


def _udev_module(properties: Mapping[str, str], prefix: str) -> MemoryModule | None:
    def number(name: str) -> int | None:
        value = parse_integer(properties.get(prefix + name, ""))
        return value if value is not None and value > 0 else None

    def text(name: str) -> str | None:
        escaped = properties.get(prefix + name, "")
        return re.sub(r"\\x([0-9a-f]{2})", lambda m: chr(int(m[1], 16)), escaped).strip() or None

    size, rated = number("SIZE"), number("SPEED_MTS")
    if size is None:
        return None
    configured = number("CONFIGURED_SPEED_MTS") or rated
    locator = text("LOCATOR")
    return MemoryModule(
        locator=locator,
        type=text("TYPE"),
        size_bytes=size,
        transfers_per_s=None if configured is None else configured * 1_000_000,
        rated_transfers_per_s=None if rated is None else rated * 1_000_000,
        width_bits=number("DATA_WIDTH"),
        channel=find_channel(locator, text("BANK_LOCATOR")),
    )


def _read_edac(root: Root) -> tuple[MemoryModule, ...]:
    modules = []
    for controller in root.list_numbers(EDAC_FOLDER, "mc"):
        for name in ("dimm", "rank"):
            folder = f"{EDAC_FOLDER}/mc{controller}"
            for slot in root.list_numbers(folder, name)[:_MAX_SLOTS]:
                module = _edac_module(root, f"{folder}/{name}{slot}", controller)
                if module is not None:
                    modules.append(module)
    return tuple(modules) or _read_chip_select_rows(root)


def _read_chip_select_rows(root: Root) -> tuple[MemoryModule, ...]:
    """Read the rows that kernels before 3.6 count instead of modules; channels are unknown."""
    modules = []
    for controller in root.list_numbers(EDAC_FOLDER, "mc"):
        for row in root.list_numbers(f"{EDAC_FOLDER}/mc{controller}", "csrow")[:_MAX_SLOTS]:
            folder = f"{EDAC_FOLDER}/mc{controller}/csrow{row}"
            mebibytes = root.read_integer(f"{folder}/size_mb")
            if mebibytes and mebibytes > 0:
                modules.append(
                    MemoryModule(
                        locator=root.read_text(f"{folder}/ch0_dimm_label") or None,
                        type=_edac_type(root.read_text(f"{folder}/mem_type")),
                        size_bytes=mebibytes * 2**20,
                        transfers_per_s=None,
                    )
                )
    return tuple(modules)


def _edac_type(text: str | None) -> str | None:
    kind = re.search(r"LPDDR[0-9]|DDR[0-9]", text or "")
    return kind[0] if kind else None


def _edac_module(root: Root, folder: str, controller: int) -> MemoryModule | None:
    mebibytes = root.read_integer(f"{folder}/size")
    if not mebibytes or mebibytes < 0:
        return None
    channel = re.search(r"channel ([0-9]+)", root.read_text(f"{folder}/dimm_location") or "")
    return MemoryModule(
        locator=root.read_text(f"{folder}/dimm_label") or None,
        type=_edac_type(root.read_text(f"{folder}/dimm_mem_type")),
        size_bytes=mebibytes * 2**20,
        transfers_per_s=None,
        channel=f"MC{controller} {channel[1]}" if channel else None,
    )


def parse_memory_modules(table: bytes) -> tuple[MemoryModule, ...]:
    """Read the memory devices (type 17) of an SMBIOS table; damaged ones are left out.

    Source: DMTF DSP0134, section 7.18.
    """
    modules = []
    for kind, body, strings in _structures(table):
        if kind == _MEMORY_DEVICE:
            module = _parse_module(body, strings)
            if module is not None:
                modules.append(module)
    return tuple(modules)


def _structures(table: bytes) -> Iterator[tuple[int, bytes, tuple[str, ...]]]:
    """Yield type, formatted area and strings of each structure while the table makes sense."""
    position = 0
    for _ in range(_MAX_STRUCTURES):
        if position + 4 > len(table):
            return
        kind, length = table[position], table[position + 1]
        end = table.find(b"\0\0", position + length)
        if length < 4 or end < 0 or kind == _END_OF_TABLE:
            return
        words = table[position + length : end].split(b"\0")
        strings = tuple(word.decode("latin-1").strip() for word in words)
        yield kind, table[position : position + length], strings
        position = end + 2


def _parse_module(body: bytes, strings: tuple[str, ...]) -> MemoryModule | None:
    size = _module_size(body)
    kind = body[0x12] if len(body) > 0x12 else None
    if not size or kind in _NOT_MAIN_MEMORY:
        return None  # an empty slot, or the firmware's own chip
    locator, bank = _string(body, 0x10, strings), _string(body, 0x11, strings)
    data_width = _word(body, 0x0A)
    rated = _speed(body, 0x15, 0x54)
    return MemoryModule(
        locator=locator,
        type=None if kind is None else _MODULE_TYPES.get(kind),
        size_bytes=size,
        transfers_per_s=_speed(body, 0x20, 0x58) or rated,
        rated_transfers_per_s=rated,
        width_bits=None if data_width in (None, 0, 0xFFFF) else data_width,
        channel=find_channel(locator, bank),
    )


def _module_size(body: bytes) -> int | None:
    size = _word(body, 0x0C)
    if size is None or size == 0xFFFF:
        return None
    if size == 0x7FFF:
        extended = _double_word(body, 0x1C)
        return None if extended is None else (extended & 0x7FFF_FFFF) * 2**20
    return (size & 0x7FFF) * (2**10 if size & 0x8000 else 2**20)


def _speed(body: bytes, offset: int, extended_offset: int) -> int | None:
    """Read a speed, given in million transfers a second; 0 is unknown, 0xFFFF see elsewhere."""
    speed = _word(body, offset)
    if speed == 0xFFFF:
        speed = _double_word(body, extended_offset)
    return speed * 1_000_000 if speed else None


def _string(body: bytes, offset: int, strings: tuple[str, ...]) -> str | None:
    index = body[offset] if len(body) > offset else 0
    return strings[index - 1] or None if 0 < index <= len(strings) else None


def _word(body: bytes, offset: int) -> int | None:
    if len(body) < offset + 2:
        return None
    value: int = struct.unpack_from("<H", body, offset)[0]
    return value


def _double_word(body: bytes, offset: int) -> int | None:
    if len(body) < offset + 4:
        return None
    value: int = struct.unpack_from("<I", body, offset)[0]
    return value


def find_channel(locator: str | None, bank: str | None) -> str | None:
    """Name the channel from a slot's and a bank's label; None if neither tells it.

    Sockets and controllers named there become part of the name, so that equal letters
    of two of them stay apart.
    """
    for text in (locator or "", bank or ""):
        match = _CHANNEL_WORD.search(text) or _SLOT_LETTER.search(text)
        if match is not None:
            sockets = _SOCKET_WORD.findall(f"{bank or ''} {locator or ''}")
            return " ".join([*dict.fromkeys(word.upper() for word in sockets), match[1].upper()])
    return None
