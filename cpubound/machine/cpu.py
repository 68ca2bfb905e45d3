"""The CPU: ``/proc/cpuinfo`` of every architecture, the CPU's name and its instruction sets."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from cpubound.machine.files import MAX_CPUS, CpuSet, Root, parse_integer

_S390_LINE = re.compile(r"processor ([0-9]+)")
_SPARC_LINE = re.compile(r"CPU([0-9]+)")

# Flags of /proc/cpuinfo that some ggml kernel is compiled for (ggml/src/ggml-cpu/arch).
_KERNEL_FLAG_NAMES = """
sse3 pni ssse3 sse4_1 sse4_2 avx avx2 fma f16c bmi2 avx_vnni avx_vnni_int8 avx_ifma avx10
avx512f avx512cd avx512bw avx512dq avx512vl avx512vbmi avx512_vbmi2 avx512_vnni avx512_bf16
avx512_fp16 amx_tile amx_int8 amx_bf16 amx_fp16 gfni
neon asimd fphp asimdhp asimddp i8mm bf16 sve sve2 svei8mm svebf16 sme sme2
vx vxd vxe vxe2 vxe3 nnpa lsx lasx
"""
_KERNEL_FLAGS = frozenset(_KERNEL_FLAG_NAMES.split())
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


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuInfo:
    """Fields by processor number, and those that stand outside any processor's block."""

    processors: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    common: Mapping[str, str] = field(default_factory=dict)

    def get(self, cpu: int, key: str) -> str | None:
        """Give a field of one processor, or the common one."""
        return self.processors.get(cpu, {}).get(key) or self.common.get(key)

    def first(self, *keys: str) -> str | None:
        """Give the first non-empty value of the first key that any processor has."""
        for key in keys:
            for fields in (*self.processors.values(), self.common):
                if fields.get(key):
                    return fields[key]
        return None


def read_cpuinfo(root: Root) -> CpuInfo:
    """Read ``/proc/cpuinfo``; without one, or for garbage, there are no processors.

    Most architectures write a block of ``key : value`` lines per processor. Old Arm
    kernels put what all share after the blocks, s390 before them with one line
    ``processor 0: version = …`` each, sparc lists ``CPU0: online``.
    """
    processors: dict[int, dict[str, str]] = {}
    common: dict[str, str] = {}
    block: dict[str, str] = common
    for line in (root.read_text("/proc/cpuinfo") or "").splitlines():
        key, found, value = (part.strip() for part in line.partition(":"))
        if not found:
            block = block if line.strip() else common
            continue
        number = _processor_number(key, value)
        if number is None:
            block.setdefault(key, value)
        elif key in ("processor", "cpu number"):
            block = processors.setdefault(number, {})
        else:
            processors.setdefault(number, {})
            common.setdefault(key, value)
    return CpuInfo(processors=processors, common=common)


def _processor_number(key: str, value: str) -> int | None:
    digits = value
    if key not in ("processor", "cpu number"):
        match = _S390_LINE.fullmatch(key)
        if match is None and value == "online":
            match = _SPARC_LINE.fullmatch(key)
        digits = match[1] if match else ""
    if not (digits.isascii() and digits.isdigit() and len(digits) < 8):
        return None
    number = int(digits)
    return number if number < MAX_CPUS else None


def read_architecture(root: Root, cpuinfo: CpuInfo) -> str:
    """Name the architecture as ``uname -m`` does; ``unknown`` if a snapshot does not tell."""
    if root.is_live:
        return platform.machine() or "unknown"
    noted = root.read_fields("/proc/hwloc-nofile-info").get("Architecture")
    return noted or _infer_architecture(root, cpuinfo) or "unknown"


def _infer_architecture(root: Root, cpuinfo: CpuInfo) -> str | None:
    flags = (cpuinfo.first("flags") or "").split()
    if "fpu" in flags or "tsc" in flags:
        return "x86_64" if "lm" in flags else "i686"
    if cpuinfo.first("CPU implementer", "CPU architecture"):
        return _infer_arm(cpuinfo)
    if isa := cpuinfo.first("isa", "hart isa"):
        return "riscv32" if isa.startswith("rv32") else "riscv64"
    if (cpuinfo.first("vendor_id") or "").startswith("IBM/S390"):
        return "s390x"
    if cpuinfo.first("arch") == "IA-64":
        return "ia64"
    if "oongson" in (cpuinfo.first("Model Name", "CPU Family") or ""):
        return "loongarch64"
    if "(pvr " in (cpuinfo.first("revision") or ""):
        return "ppc64" if "POWER" in (cpuinfo.first("cpu") or "") else "ppc"
    if cpuinfo.first("type") in ("sun4u", "sun4v"):
        return "sparc64"
    alias = root.read_text("/sys/devices/system/cpu/modalias") or ""
    match = re.match(r"cpu:type:(\w+?)[,:]", alias)
    names = {"x86": "x86_64", "s390": "s390x"}
    return names.get(match[1], match[1]) if match else None


def _infer_arm(cpuinfo: CpuInfo) -> str:
    version = cpuinfo.first("CPU architecture") or ""
    if version.startswith("8") or version == "AArch64" or "asimd" in _features(cpuinfo, None):
        return "aarch64"
    return f"armv{version[0]}l" if version[:1].isdigit() else "arm"


def read_cpu_model(root: Root, cpuinfo: CpuInfo, online: CpuSet) -> str | None:
    """Name the CPU; where cores differ, all their names (``Cortex-A53 + Cortex-A72``)."""
    if cpuinfo.first("CPU implementer") and cpuinfo.first("CPU part"):
        cpus = sorted(online) or [0]
        names = dict.fromkeys(name for cpu in cpus if (name := name_arm_core(cpuinfo, cpu)))
        if names:
            return " + ".join(names)
    if (cpuinfo.first("vendor_id") or "").startswith("IBM/S390"):
        return _s390_model(root, cpuinfo)
    return cpuinfo.first(
        "model name",  # x86
        "Model Name",  # LoongArch
        "uarch",  # RISC-V
        "cpu model",  # MIPS, Alpha
        "cpu",  # POWER, sparc
        "family",  # IA-64
        "Processor",
    )


def _s390_model(root: Root, cpuinfo: CpuInfo) -> str:
    machine = root.read_fields("/proc/sysinfo").get("Type")
    if machine is None:
        match = re.search(r"machine = (\w+)", cpuinfo.first("processor 0") or "")
        machine = match[1] if match else None
    return f"IBM/S390 {machine}" if machine else "IBM/S390"


def read_isa_flags(cpuinfo: CpuInfo, online: CpuSet) -> tuple[str, ...]:
    """List the flags that matter to kernels and that every online CPU has, sorted."""
    cpus = [cpu for cpu in online if cpu in cpuinfo.processors]
    sets = [_features(cpuinfo, cpu) for cpu in cpus] or [_features(cpuinfo, None)]
    return tuple(sorted(frozenset.intersection(*sets)))


def _features(cpuinfo: CpuInfo, cpu: int | None) -> frozenset[str]:
    found: set[str] = set()
    for key in ("flags", "Features", "features"):
        text = cpuinfo.first(key) if cpu is None else cpuinfo.get(cpu, key)
        found |= _KERNEL_FLAGS & set((text or "").split())
    for key in ("isa", "hart isa"):  # what all harts have, and what this one has
        isa = cpuinfo.first(key) if cpu is None else cpuinfo.get(cpu, key)
        found |= _riscv_extensions(isa or "")
    if "altivec" in (cpuinfo.first("cpu") or ""):
        found.add("altivec")
    return frozenset(found)


def _riscv_extensions(isa: str) -> set[str]:
    words = isa.lower().split("_")
    if not words[0].startswith(("rv32", "rv64")):
        return set()
    wanted = {"zfh", "zvfh", "zvfhmin", "zvfbfwma", "zicbop", "zihintpause", "zba"}
    return wanted & set(words[1:]) | ({"v"} if "v" in words[0][4:] else set())


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
