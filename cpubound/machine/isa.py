"""Architecture, CPU model and the instruction sets that matter to kernels."""

from __future__ import annotations

import platform
import re

from cpubound.machine.arm import name_arm_core
from cpubound.machine.cpuinfo import CpuInfo
from cpubound.machine.files import CpuSet, Root

# Flags of /proc/cpuinfo that some ggml kernel is compiled for (ggml/src/ggml-cpu/arch).
_KERNEL_FLAG_NAMES = """
sse3 pni ssse3 sse4_1 sse4_2 avx avx2 fma f16c bmi2 avx_vnni avx_vnni_int8 avx_ifma avx10
avx512f avx512cd avx512bw avx512dq avx512vl avx512vbmi avx512_vbmi2 avx512_vnni avx512_bf16
avx512_fp16 amx_tile amx_int8 amx_bf16 amx_fp16 gfni
neon asimd fphp asimdhp asimddp i8mm bf16 sve sve2 svei8mm svebf16 sme sme2
vx vxd vxe vxe2 vxe3 nnpa lsx lasx
"""
_KERNEL_FLAGS = frozenset(_KERNEL_FLAG_NAMES.split())


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
