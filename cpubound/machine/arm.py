"""Names of Arm cores by their implementer and part numbers."""

from __future__ import annotations

from cpubound.machine.cpuinfo import CpuInfo
from cpubound.machine.files import parse_integer

# Arm's implementer and part numbers (Main ID Register), for the parts people run models on.
_ARM_PARTS = {
    0x41: {
        0xC05: "Cortex-A5",
        0xC07: "Cortex-A7",
        0xC08: "Cortex-A8",
        0xC09: "Cortex-A9",
        0xC0D: "Cortex-A17",
        0xC0E: "Cortex-A17",
        0xC0F: "Cortex-A15",
        0xB76: "ARM1176",
        0xD01: "Cortex-A32",
        0xD02: "Cortex-A34",
        0xD03: "Cortex-A53",
        0xD04: "Cortex-A35",
        0xD05: "Cortex-A55",
        0xD06: "Cortex-A65",
        0xD07: "Cortex-A57",
        0xD08: "Cortex-A72",
        0xD09: "Cortex-A73",
        0xD0A: "Cortex-A75",
        0xD0B: "Cortex-A76",
        0xD0C: "Neoverse-N1",
        0xD0D: "Cortex-A77",
        0xD0E: "Cortex-A76AE",
        0xD40: "Neoverse-V1",
        0xD41: "Cortex-A78",
        0xD42: "Cortex-A78AE",
        0xD43: "Cortex-A65AE",
        0xD44: "Cortex-X1",
        0xD46: "Cortex-A510",
        0xD47: "Cortex-A710",
        0xD48: "Cortex-X2",
        0xD49: "Neoverse-N2",
        0xD4A: "Neoverse-E1",
        0xD4B: "Cortex-A78C",
        0xD4C: "Cortex-X1C",
        0xD4D: "Cortex-A715",
        0xD4E: "Cortex-X3",
        0xD4F: "Neoverse-V2",
        0xD80: "Cortex-A520",
        0xD81: "Cortex-A720",
        0xD82: "Cortex-X4",
        0xD83: "Neoverse-V3AE",
        0xD84: "Neoverse-V3",
        0xD85: "Cortex-X925",
        0xD87: "Cortex-A725",
        0xD88: "Cortex-A520AE",
        0xD89: "Cortex-A720AE",
        0xD8E: "Neoverse-N3",
        0xD8F: "Cortex-A320",
    },
    0x42: {0x0F: "Brahma-B15", 0x100: "Brahma-B53", 0x516: "ThunderX2"},
    0x43: {0x0A0: "ThunderX", 0x0A1: "ThunderX-88XX", 0x0AF: "ThunderX2-99xx"},
    0x46: {0x001: "A64FX", 0x003: "MONAKA"},
    0x48: {0xD01: "Kunpeng-920", 0xD02: "TaiShan-v120", 0xD40: "Cortex-A76"},
    0x4E: {0x000: "Denver", 0x003: "Denver 2", 0x004: "Carmel", 0x010: "Olympus"},
    0x50: {0x000: "X-Gene"},
    0x51: {
        0x001: "Oryon",
        0x06F: "Krait",
        0x201: "Kryo",
        0x205: "Kryo",
        0x211: "Kryo",
        0x800: "Falkor-V1/Kryo",
        0x801: "Kryo-V2",
        0x802: "Kryo-3XX-Gold",
        0x803: "Kryo-3XX-Silver",
        0x804: "Kryo-4XX-Gold",
        0x805: "Kryo-4XX-Silver",
        0xC00: "Falkor",
        0xC01: "Saphira",
    },
    0x53: {0x001: "exynos-m1", 0x002: "exynos-m3", 0x003: "exynos-m4", 0x004: "exynos-m5"},
    0x61: {
        0x022: "Icestorm-M1",
        0x023: "Firestorm-M1",
        0x024: "Icestorm-M1-Pro",
        0x025: "Firestorm-M1-Pro",
        0x028: "Icestorm-M1-Max",
        0x029: "Firestorm-M1-Max",
        0x032: "Blizzard-M2",
        0x033: "Avalanche-M2",
        0x034: "Blizzard-M2-Pro",
        0x035: "Avalanche-M2-Pro",
        0x038: "Blizzard-M2-Max",
        0x039: "Avalanche-M2-Max",
    },
    0x6D: {0xD49: "Azure-Cobalt-100"},
    0x70: {0x303: "FTC310", 0x660: "FTC660", 0x661: "FTC661", 0x662: "FTC662", 0x663: "FTC663"},
    0xC0: {0xAC3: "Ampere-1", 0xAC4: "Ampere-1a"},
}
_ARM_IMPLEMENTERS = {
    0x41: "Arm",
    0x42: "Broadcom",
    0x43: "Cavium",
    0x46: "Fujitsu",
    0x48: "HiSilicon",
    0x4E: "NVIDIA",
    0x50: "APM",
    0x51: "Qualcomm",
    0x53: "Samsung",
    0x56: "Marvell",
    0x61: "Apple",
    0x6D: "Microsoft",
    0x70: "Phytium",
    0xC0: "Ampere",
}

# Arm cores designed to be the small ones beside others (part numbers of Arm itself).
_LITTLE_PARTS = {0xC07, 0xD03, 0xD04, 0xD05, 0xD46, 0xD80, 0xD8F}


def read_arm_part(cpuinfo: CpuInfo, cpu: int) -> tuple[int, int] | None:
    """Give implementer and part number of one Arm CPU, or None."""
    implementer = parse_integer(cpuinfo.get(cpu, "CPU implementer") or "")
    part = parse_integer(cpuinfo.get(cpu, "CPU part") or "")
    return None if implementer is None or part is None else (implementer, part)


def name_arm_core(cpuinfo: CpuInfo, cpu: int) -> str | None:
    """Name the core of one Arm CPU, by its numbers if the name is not known."""
    identity = read_arm_part(cpuinfo, cpu)
    if identity is None:
        return None
    implementer, part = identity
    if name := _ARM_PARTS.get(implementer, {}).get(part):
        return name
    # Some kernels and virtual machines say the model in words.
    model = cpuinfo.get(cpu, "model name")
    if model and not model.startswith("ARMv"):
        return model
    return f"{_ARM_IMPLEMENTERS.get(implementer, hex(implementer))} part {part:#x}"


def is_little_core(part: tuple[int, int]) -> bool:
    """Say whether a core, given by implementer and part, was made to be the small one."""
    return part[0] == 0x41 and part[1] in _LITTLE_PARTS
