"""What a machine is, without measuring: the ``Machine`` value. Unknown is ``None``."""

from __future__ import annotations

import msgspec


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


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine as the operating system describes it.

    CPU numbers are the kernel's logical CPU numbers. ``effective_cpus`` is how many
    threads can really run at once: the smaller of the allowed CPUs and the floor of the
    quota, and at least one.
    """

    cpu_model: str | None
    architecture: str  # as uname -m says: "x86_64", "aarch64", …
    operating_system: str
    logical_cpus: tuple[int, ...]
    online_cpus: tuple[int, ...]
    allowed_cpus: tuple[int, ...]
    physical_cores: int | None
    packages: int | None
    threads_per_core: int | None
    core_cpus: tuple[tuple[int, ...], ...] = ()  # SMT siblings of each core
    package_cpus: tuple[tuple[int, ...], ...] = ()
    core_kinds: tuple[CoreKind, ...] = ()
    numa_nodes: tuple[NumaNode, ...] = ()
    caches: tuple[Cache, ...] = ()
    quota_cpus: float | None
    effective_cpus: int
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

    @property
    def last_level_cache_bytes(self) -> int | None:
        """Size of all last-level caches together, or None if undetermined."""
        sized = [c for c in self.caches if c.size_bytes and c.type != "instruction"]
        if not sized:
            return None
        last = max(c.level for c in sized)
        return sum((c.size_bytes or 0) * c.instances for c in sized if c.level == last)

    @property
    def usable_memory_bytes(self) -> int | None:
        """The memory a program may use: the smaller of what there is and its limit."""
        known = [m for m in (self.memory_bytes, self.memory_limit_bytes) if m is not None]
        return min(known) if known else None
