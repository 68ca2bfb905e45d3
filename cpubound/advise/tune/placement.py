"""Which CPUs, memory and environment to set: rules over a ``Machine``, nothing measured here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cpubound.machine.values import Machine, format_cpu_list

# ggml.h, GGML_MAX_N_THREADS: a CPU mask has no bit for higher numbers.
MASK_CPUS = 512
# Memory that is better locked: a file this large is what a system under pressure drops first,
# and above the second share locking would starve the rest.
_LOCK_SHARES = (0.5, 0.8)
# Huge pages are worth a slower load from here on.
_HUGE_PAGE_GAIN = 1.05

CpusFor = Callable[[int], tuple[int, ...] | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Where threads and weights go."""

    batch_threads: int
    cpus: tuple[int, ...] | None
    batch_cpus: tuple[int, ...] | None
    pin: bool
    numa: str | None = None  # "numactl", "distribute" or None
    repack: bool = True
    load_mode: str = "auto"
    environment: dict[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()


def place(
    machine: Machine,
    threads: int,
    cpus_for: CpusFor,
    *,
    resident_bytes: int,
    batch_threads: int | None = None,
    engine_features: Iterable[str] = (),
    huge_page_gain: float | None = None,
    memory_bound: bool = False,
) -> Placement:
    """Choose CPUs, memory policy, load mode and environment for a number of decode threads.

    Parameters
    ----------
    cpus_for : the CPUs for a thread count, None where threads are more than CPUs.
    resident_bytes : weights and cache together.
    batch_threads : threads for prompts; by default one per core.
    engine_features : of the llama.cpp that was measured ("OPENMP", …).
    huge_page_gain : read bandwidth on 2 MiB pages over that on 4 KiB pages, if measured.
    memory_bound : whether memory sets the decode rate.
    """
    cpus = cpus_for(threads)
    batch_threads = batch_threads or physical_threads(machine)
    batch_cpus = cpus_for(batch_threads)
    numa, numa_reason = _numa(machine, cpus, resident_bytes)
    # With --numa distribute ggml sets the affinity itself, after and over any mask.
    pin_reason = None if numa == "distribute" else _pin_reason(machine, cpus)
    load_mode, load_reason = _load_mode(machine, resident_bytes, huge_page_gain, memory_bound)
    environment, wait_reason = _environment(machine, threads, engine_features)
    return Placement(
        batch_threads=batch_threads,
        cpus=cpus,
        batch_cpus=batch_cpus,
        pin=pin_reason is not None and batch_cpus is not None,
        numa=numa,
        repack=numa != "distribute",
        load_mode=load_mode,
        environment=environment,
        reasons=tuple(r for r in (pin_reason, numa_reason, load_reason, wait_reason) if r),
    )


def physical_threads(machine: Machine) -> int:
    """Return the threads for prompts: one per core that may be used, within the quota.

    Prompts are bound by arithmetic and go on scaling over all cores, slow ones included,
    where decode has stopped; the second thread of a core adds no arithmetic unit.
    """
    allowed = set(machine.allowed_cpus)
    grouped = [core for core in machine.core_cpus if allowed.intersection(core)]
    alone = allowed.difference(*grouped)
    return max(1, min(machine.effective_cpus, len(grouped) + len(alone)))


def _pin_reason(machine: Machine, cpus: tuple[int, ...] | None) -> str | None:
    """Say why the threads should be tied to these CPUs, None where it changes nothing."""
    if not cpus or machine.operating_system == "Darwin" or max(machine.allowed_cpus) >= MASK_CPUS:
        return None
    chosen = set(cpus)
    others = set(machine.allowed_cpus) - chosen
    if not others:
        return None
    where = f"CPUs {format_cpu_list(cpus)}"
    fast = set(machine.performance_cpus)
    if len(machine.core_kinds) > 1 and chosen <= fast and others - fast:
        return f"{where}: performance cores only; -t alone does not keep threads off the slow ones"
    if any(chosen.intersection(core) and others.intersection(core) for core in machine.core_cpus):
        return f"{where}: one thread on each core, its second hardware thread stays free"
    if len(machine.numa_nodes) > 1 or len(_cache_groups(machine)) > 1:
        return f"{where}: the ones that were measured; other cores have another cache or node"
    return None


def _cache_groups(machine: Machine) -> list[tuple[int, ...]]:
    shared = [c for c in machine.caches if c.type != "instruction" and c.shared_cpus]
    if not shared:
        return []
    last = max(cache.level for cache in shared)
    return [group for cache in shared if cache.level == last for group in cache.shared_cpus]


def _numa(
    machine: Machine, cpus: tuple[int, ...] | None, resident_bytes: int
) -> tuple[str | None, str | None]:
    """Choose how memory follows the threads on a machine of several nodes."""
    nodes = [node for node in machine.numa_nodes if set(node.cpus) & set(machine.allowed_cpus)]
    if len(nodes) < 2 or not cpus:
        return None, None
    used = [node for node in nodes if set(node.cpus) & set(cpus)]
    if len(used) == 1:
        memory = used[0].memory_bytes
        if memory is not None and resident_bytes <= memory:
            return "numactl", (
                f"all threads are on node {used[0].id}, and so must the weights be: memory of the "
                "other node is slower; drop the page cache before the first start"
            )
        return None, None
    return "distribute", (
        f"threads on {len(used)} nodes: each must touch its part of the weights first, so "
        "--numa distribute, no repacking (it puts all on one node), and a dropped page cache "
        "(echo 1 | sudo tee /proc/sys/vm/drop_caches)"
    )


def _load_mode(
    machine: Machine, resident_bytes: int, huge_page_gain: float | None, memory_bound: bool
) -> tuple[str, str | None]:
    memory = machine.usable_memory_bytes
    share = resident_bytes / memory if memory else 0.0
    low, high = _LOCK_SHARES
    if low <= share <= high:
        return "mmap+mlock", (
            f"the model takes {share * 100:.0f} % of the memory: locked, the system cannot drop it "
            "(needs `ulimit -l unlimited`; older builds: --mlock)"
        )
    huge = machine.transparent_huge_pages == "always" and memory_bound and share < low
    if huge and huge_page_gain is not None and huge_page_gain >= _HUGE_PAGE_GAIN:
        return "none", (
            f"2 MiB pages read {(huge_page_gain - 1) * 100:.0f} % faster here and a mapped file "
            "has none: load without mapping (slower start; older builds: --no-mmap); confirm with "
            "--verify"
        )
    return "auto", None


def _environment(
    machine: Machine, threads: int, engine_features: Iterable[str]
) -> tuple[dict[str, str], str | None]:
    """Choose how OpenMP's threads wait between tokens.

    libgomp spins 300,000 times before it sleeps (GOMP_SPINCOUNT in its manual). A judgement: on
    x86, whose pause instruction takes tens of cycles, that outlasts the gap between two tokens;
    on Arm it does not, and active waiting gave +8 % on one board. Under a quota spinning would
    burn it.
    """
    is_arm = machine.architecture in ("aarch64", "arm64", "armv7l")
    may_spin = machine.quota_cpus is None and machine.on_battery is not True
    if threads < 2 or "OPENMP" not in engine_features or not is_arm or not may_spin:
        return {}, None
    return {"OMP_WAIT_POLICY": "active"}, (
        "OMP_WAIT_POLICY=active: OpenMP threads sleep between tokens otherwise (+8 % on one Arm "
        "board, not measured here); an idle server then keeps its cores busy, which "
        "GOMP_SPINCOUNT=10000000 instead bounds"
    )
