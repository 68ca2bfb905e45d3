"""What a machine is, without measuring: the ``Machine`` value. Unknown is ``None``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec

# What a saved machine may hold; checked where a file is read.
Cpu = Annotated[int, msgspec.Meta(ge=0, le=2**20)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**20)]


class CoreKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of core: ``performance``, ``efficiency``, or ``uniform`` where all are alike."""

    kind: str
    cpus: tuple[int, ...]
    max_khz: int | None = None


class NumaNode(msgspec.Struct, frozen=True, kw_only=True):
    """One memory node; a node may have no CPUs or no memory."""

    id: int
    cpus: tuple[int, ...]
    memory_bytes: int | None = None


class Cache(msgspec.Struct, frozen=True, kw_only=True):
    """All caches of one level, type and size."""

    level: int
    type: str  # "data", "instruction" or "unified"
    size_bytes: int | None
    instances: int
    shared_cpus: tuple[tuple[int, ...], ...] = ()  # one group of CPUs per instance


class MemoryModule(msgspec.Struct, frozen=True, kw_only=True):
    """One populated memory slot as the firmware describes it."""

    locator: str | None  # "DIMM_A1", "ChannelB-DIMM0"
    type: str | None  # "DDR5", "LPDDR5"
    size_bytes: int
    transfers_per_s: int | None  # as configured; the module may be able to do more
    rated_transfers_per_s: int | None = None
    width_bits: int | None = None  # data bits, without those for error correction
    channel: str | None = None  # where the locator tells


def format_cpu_list(cpus: Iterable[int]) -> str:
    """Write CPU numbers as ``taskset -c`` takes them (``0-3,8``)."""
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ranges)


def format_cpu_mask(cpus: Iterable[int]) -> str:
    """Write CPU numbers as the mask that llama.cpp's ``--cpu-mask`` takes (``0xff``)."""
    return hex(sum(1 << cpu for cpu in set(cpus)))


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine as the operating system describes it.

    CPU numbers are the kernel's logical CPU numbers. ``effective_cpus`` is how many
    threads can really run at once: the smaller of the allowed CPUs and the floor of the
    quota, and at least one.
    """

    cpu_model: str | None
    architecture: str  # as uname -m says: "x86_64", "aarch64", …
    operating_system: str
    logical_cpus: tuple[Cpu, ...]
    online_cpus: tuple[Cpu, ...]
    allowed_cpus: tuple[Cpu, ...]
    physical_cores: Count | None
    packages: Count | None
    threads_per_core: Count | None
    core_cpus: tuple[tuple[Cpu, ...], ...] = ()  # SMT siblings of each core
    package_cpus: tuple[tuple[int, ...], ...] = ()
    core_kinds: tuple[CoreKind, ...] = ()
    numa_nodes: tuple[NumaNode, ...] = ()
    caches: tuple[Cache, ...] = ()
    quota_cpus: float | None
    effective_cpus: Count
    memory_bytes: int | None
    memory_limit_bytes: int | None
    memory_available_bytes: int | None = None
    page_size_bytes: int | None = None
    huge_page_size_bytes: int | None = None
    transparent_huge_pages: str | None = None  # "always", "madvise" or "never"
    governor: str | None = None
    boost: bool | None = None
    on_battery: bool | None = None
    hypervisor: str | None = None
    isa_flags: tuple[str, ...] = ()  # the flags of /proc/cpuinfo that matter to kernels
    quota_periods: int | None = None  # scheduler periods since the process's cgroup began,
    quota_throttled_periods: int | None = None  # and those in which the quota ran out
    huge_pages_total: int | None = None  # reserved by the administrator
    huge_pages_free: int | None = None
    frequency_driver: str | None = None  # "intel_pstate", "amd-pstate-epp", "acpi-cpufreq", …
    energy_preference: str | None = None  # of the CPU: "performance", "balance_power", …
    platform_profile: str | None = None  # of the firmware: "low-power", "balanced", …
    throttle_events: int | None = None  # times that heat slowed a core, since boot
    steal_fraction: float | None = None  # CPU time a hypervisor gave to others, since boot
    load_average: float | None = None  # runnable threads, mean of the last minute
    memory_modules: tuple[MemoryModule, ...] = ()
    cpu_vendor: str | None = None  # as the CPU says: "AuthenticAMD", "0x41"
    cpu_family: str | None = None  # x86's family; Arm's architecture
    cpu_model_number: str | None = None  # x86's model; Arm's part

    @property
    def cpu_identity(self) -> str | None:
        """What the CPU says it is, whatever name a hypervisor gives it: ``AuthenticAMD 26/2``."""
        if self.cpu_family is None or self.cpu_model_number is None:
            return None
        return f"{self.cpu_vendor or '?'} {self.cpu_family}/{self.cpu_model_number}"

    @property
    def last_level_cache_bytes(self) -> int | None:
        """Size of all last-level caches together, or None if undetermined."""
        sized = [c for c in self.caches if c.size_bytes and c.type != "instruction"]
        if not sized:
            return None
        last = max(c.level for c in sized)
        return sum((c.size_bytes or 0) * c.instances for c in sized if c.level == last)

    @property
    def theoretical_bytes_per_s(self) -> float | None:
        """Bandwidth of the memory modules together, or None if their channels are unknown.

        Modules of one channel share it. Soldered memory (LPDDR) has a channel a device.
        The modules that a virtual machine shows do not exist: None.
        """
        if self.hypervisor is not None:
            return None
        lanes: dict[object, float] = {}
        for index, module in enumerate(self.memory_modules):
            soldered = (module.type or "").startswith("LPDDR")
            alone = soldered or len(self.memory_modules) == 1
            lane = index if alone else module.channel
            if lane is None or module.transfers_per_s is None or module.width_bits is None:
                return None
            rate = module.transfers_per_s * module.width_bits / 8
            lanes[lane] = max(rate, lanes.get(lane, 0.0))
        return sum(lanes.values()) or None

    @property
    def performance_cpus(self) -> tuple[int, ...]:
        """The CPUs of performance cores; all online CPUs where cores are of one kind."""
        rows = [kind.cpus for kind in self.core_kinds if kind.kind != "efficiency"]
        return tuple(sorted(cpu for cpus in rows for cpu in cpus)) or self.online_cpus

    def duty_cycle(self, threads: int) -> float:
        """Return the share of the time in which a team may run: 1 unless a quota is below it.

        Threads of a team wait actively for each other, so that each takes a CPU all the time;
        where the quota is used up all stand still until the scheduler's next period.
        """
        return 1.0 if self.quota_cpus is None else min(1.0, self.quota_cpus / threads)

    @property
    def free_memory_bytes(self) -> int | None:
        """The memory a program could have now: what is available, within the limit."""
        known = [
            m for m in (self.memory_available_bytes, self.usable_memory_bytes) if m is not None
        ]
        return min(known) if known else None

    @property
    def usable_memory_bytes(self) -> int | None:
        """The memory a program may use: the smaller of what there is and its limit."""
        known = [m for m in (self.memory_bytes, self.memory_limit_bytes) if m is not None]
        return min(known) if known else None


def changed_limits(made_on: Machine, now: Machine) -> list[str]:
    """Say that fewer CPUs can run than when a profile was made, or more."""

    def cpus(machine: Machine) -> float:
        return machine.effective_cpus * machine.duty_cycle(machine.effective_cpus)

    if cpus(made_on) == cpus(now):
        return []
    quota = f" (a quota of {now.quota_cpus:g})" if now.quota_cpus is not None else ""
    can_run = "1 CPU" if cpus(now) == 1 else f"{cpus(now):g} CPUs"
    return [f"{can_run} can run at once now{quota}; the profile was made with {cpus(made_on):g}"]
