"""What programs do when nothing is set, on a given machine: rules read from their sources."""

from __future__ import annotations

from dataclasses import dataclass

from cpubound.machine.values import Machine


@dataclass(frozen=True, kw_only=True, slots=True)
class Default:
    """A program's own decode threads and flash-attention; its KV cache is F16."""

    threads: int
    flash_attn: bool


def program_defaults(machine: Machine) -> dict[str, Default]:
    """Return what each program takes by itself.

    llama.cpp: ``common_cpu_get_num_math`` (common/common.cpp) threads, flash-attn auto, which
    is on on CPUs. llama-cpp-python: half the logical CPUs, flash-attn off (llama_cpp/llama.py
    of 0.3.36). Both at commit 0c1e57098bba. Ollama starts llama.cpp's server without ``-t``
    and with ``--flash-attn auto`` (llm/llama_server.go at commit 00f6d6204325: startLlamaServer,
    LlamaServerFlashAttention), so it does as llama.cpp does; before that it counted cores itself
    and honoured a quota of cgroup v2 (discover/cpu_linux.go).
    """
    llama_cpp = Default(threads=llama_cpp_threads(machine), flash_attn=True)
    return {
        "llama.cpp": llama_cpp,
        "llama-cpp-python": Default(
            threads=max(len(machine.online_cpus) // 2, 1), flash_attn=False
        ),
        "Ollama": llama_cpp,
    }


def koboldcpp_default(machine: Machine) -> Default:
    """Return what KoboldCpp takes by itself.

    Half the logical CPUs, one less from four on; on Intel 8 at most, for the efficiency cores'
    sake; flash-attention off (``get_default_threads``, koboldcpp.py at commit 2da346a5).
    """
    half = max(len(machine.online_cpus) // 2, 1)
    threads = half if half <= 3 else max(3, half - 1)
    is_intel = "Intel" in (machine.cpu_model or "")
    return Default(threads=min(threads, 8) if is_intel else threads, flash_attn=False)


def llama_cpp_threads(machine: Machine) -> int:
    """Return llama.cpp's thread count: the host's cores, whatever affinity and quota say.

    On x86 hybrids it counts performance cores by pinning itself to each CPU in turn, and falls
    back to all cores where a pin is refused.
    """
    cores = machine.physical_cores or len(machine.online_cpus)
    fast = set(machine.performance_cpus)
    can_pin = set(machine.allowed_cpus) >= set(machine.online_cpus)
    is_hybrid = len(machine.core_kinds) > 1 and machine.architecture in ("x86_64", "AMD64")
    counts_fast = (is_hybrid and can_pin) or machine.operating_system == "Darwin"
    if counts_fast and machine.core_cpus:
        return sum(fast.issuperset(core) for core in machine.core_cpus) or cores
    return cores
