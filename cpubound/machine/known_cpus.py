"""CPUs by name as their makers describe them: ``catalogue/*.toml``, facts only, a source each.

What belongs to a micro-architecture or a series stands there once; a CPU's row says the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from cpubound.machine.memory_kind import MemoryKind, parse_memory
from cpubound.package_data import list_names, read_toml
from cpubound.units import KIB, MIB

FOLDER = ("machine", "catalogue")
_SUFFIX = ".toml"
_MICRO_ARCHITECTURES = "micro_architectures"
CLOUDS = "clouds"
UNIFORM = "uniform"
# Kinds of cores in the order in which a hybrid CPU is described: fastest first.
KINDS = (UNIFORM, "performance", "efficiency", "low_power")


class MicroArchitecture(msgspec.Struct, frozen=True, kw_only=True):
    """What all cores of one design share.

    ``isa_flags`` are the words of ``/proc/cpuinfo`` for which llama.cpp has kernels.
    ``family`` groups designs that follow one another ("zen", "neoverse").
    """

    name: str
    title: str
    maker: str
    family: str
    architecture: str  # as uname -m says: "x86_64", "aarch64", "riscv64"
    isa_flags: tuple[str, ...]
    source: str
    year: int | None = None
    l1d_bytes: int | None = None
    l2_bytes: int | None = None  # of one cache
    l2_cores: int | None = None  # that share one L2


class KnownCores(msgspec.Struct, frozen=True, kw_only=True):
    """The cores of one kind in a CPU: "uniform", "performance", "efficiency" or "low_power"."""

    kind: str
    micro_architecture: MicroArchitecture
    count: int | None
    l2_bytes: int | None = None  # of one cache, shared by ``micro_architecture.l2_cores``


class KnownCpu(msgspec.Struct, frozen=True, kw_only=True):
    """One CPU (one socket) as published. What no source gives is None or empty.

    ``cores`` has the fastest kind first. A name that tells only the generation ("EPYC-Milan", as a
    hypervisor writes it) has cores without a count. ``last_level_caches`` holds the bytes of each
    last-level cache of the socket: several where clusters of cores have their own.
    """

    name: str
    series: str
    segment: str | None  # "desktop", "laptop", "server", "board"; None for a design of cores
    cores: tuple[KnownCores, ...]
    threads: int | None
    last_level_caches: tuple[int, ...]
    memory: tuple[MemoryKind, ...]  # officially supported, all channels populated
    max_sockets: int | None
    year: int | None
    source: str

    @property
    def micro_architecture(self) -> MicroArchitecture:
        """That of the fastest cores."""
        return self.cores[0].micro_architecture

    @property
    def core_count(self) -> int | None:
        """Physical cores of all kinds, None where the name does not tell."""
        counts = [cores.count for cores in self.cores]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def fastest_memory(self) -> MemoryKind | None:
        """The supported memory with the highest peak bandwidth."""
        return max(self.memory, key=lambda kind: kind.bytes_per_s or 0.0, default=None)


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A CPU in the file; None: as in the series."""

    cores: int | dict[str, int] | None = None
    threads: int | None = None
    l3_mib: float | list[float] | None = None
    memory: list[str] | None = None
    max_sockets: int | None = None
    year: int | None = None
    micro_architecture: str | dict[str, str] | None = None
    ark: int | None = None  # Intel's number of the product page
    source: str | None = None
    also: list[str] = []


class _Series(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """CPUs that share a platform; ``l3_part_mib``: size of one of several last-level caches."""

    segment: str
    micro_architecture: str | dict[str, str]
    source: str
    cpus: dict[str, _Row]
    memory: list[str] = []
    l3_part_mib: float | None = None
    l2_kib: dict[str, int] = {}
    max_sockets: int | None = None
    year: int | None = None


class _Design(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A micro-architecture in the file."""

    title: str
    maker: str
    family: str
    architecture: str
    isa: str
    source: str
    year: int | None = None
    l1d_kib: int | None = None
    l2_kib: int | None = None
    l2_cores: int | None = None


@cache
def micro_architectures() -> Mapping[str, MicroArchitecture]:
    """Return the designs of cores by name."""
    designs = msgspec.convert(
        read_toml(*FOLDER, _MICRO_ARCHITECTURES + _SUFFIX), dict[str, _Design]
    )
    return {
        name: MicroArchitecture(
            name=name,
            title=design.title,
            maker=design.maker,
            family=design.family,
            architecture=design.architecture,
            isa_flags=tuple(design.isa.split()),
            source=design.source,
            year=design.year,
            l1d_bytes=_scaled(design.l1d_kib, KIB),
            l2_bytes=_scaled(design.l2_kib, KIB),
            l2_cores=design.l2_cores,
        )
        for name, design in designs.items()
    }


@cache
def known_cpus() -> tuple[KnownCpu, ...]:
    """Return the whole table, in the order of its files."""
    return tuple(cpu for cpu, _ in _named_cpus())


@cache
def other_names() -> Mapping[str, str]:
    """Return further names that the same CPUs go by: name → name in the table."""
    return {other: cpu.name for cpu, others in _named_cpus() for other in others}


@cache
def _named_cpus() -> tuple[tuple[KnownCpu, list[str]], ...]:
    return tuple(_read_cpus())


def _read_cpus() -> Iterator[tuple[KnownCpu, list[str]]]:
    for file in list_names(*FOLDER, suffix=_SUFFIX):
        if file in (_MICRO_ARCHITECTURES, CLOUDS):
            continue
        table: dict[str, Any] = read_toml(*FOLDER, file + _SUFFIX)
        for title, series in msgspec.convert(table, dict[str, _Series]).items():
            for name, row in series.cpus.items():
                yield _known_cpu(name, row, title, series), row.also


def _known_cpu(name: str, row: _Row, title: str, series: _Series) -> KnownCpu:
    designs = row.micro_architecture or series.micro_architecture
    by_kind = designs if isinstance(designs, dict) else {UNIFORM: designs}
    counts = row.cores if isinstance(row.cores, dict) else {UNIFORM: row.cores}
    if row.cores is None:
        counts = dict.fromkeys(by_kind)
    memory = series.memory if row.memory is None else row.memory
    return KnownCpu(
        name=name,
        series=title,
        segment=series.segment,
        cores=tuple(
            _cores(kind, counts[kind], by_kind, series.l2_kib) for kind in KINDS if kind in counts
        ),
        threads=row.threads,
        last_level_caches=_last_level_caches(row.l3_mib, series.l3_part_mib),
        memory=tuple(parse_memory(words) for words in memory),
        max_sockets=row.max_sockets or series.max_sockets,
        year=row.year or series.year,
        source=_source(row, series),
    )


def _cores(
    kind: str, count: int | None, designs: Mapping[str, str], l2_kib: Mapping[str, int]
) -> KnownCores:
    """Describe cores of one kind; a CPU with only one of its series' kinds has uniform cores."""
    name = designs.get(kind) or designs["performance"]
    design = micro_architectures()[name]
    return KnownCores(
        kind=kind,
        micro_architecture=design,
        count=count,
        l2_bytes=_scaled(l2_kib.get(kind), KIB) or design.l2_bytes,
    )


def _last_level_caches(
    l3_mib: float | list[float] | None, part_mib: float | None
) -> tuple[int, ...]:
    if l3_mib is None:
        return ()
    if isinstance(l3_mib, list):
        return tuple(round(part * MIB) for part in l3_mib)
    part = min(l3_mib, part_mib or l3_mib)
    return (round(part * MIB),) * round(l3_mib / part)


def _source(row: _Row, series: _Series) -> str:
    if row.source is not None:
        return row.source
    return series.source if row.ark is None else f"{series.source}/{row.ark}"


def _scaled(number: int | None, unit: int) -> int | None:
    return None if number is None else number * unit
