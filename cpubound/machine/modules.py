"""The memory modules, from whichever of three places may be read."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cpubound.machine.channels import find_channel
from cpubound.machine.files import Root, parse_integer
from cpubound.machine.firmware import parse_memory_modules
from cpubound.machine.values import MemoryModule

SMBIOS_TABLE = "/sys/firmware/dmi/tables/DMI"
SMBIOS_ENTRIES = "/sys/firmware/dmi/entries"
UDEV_RECORD = "/run/udev/data/+dmi:id"
EDAC_FOLDER = "/sys/devices/system/edac/mc"
_MAX_SLOTS = 1024


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
