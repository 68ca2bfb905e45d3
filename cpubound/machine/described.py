"""A machine in a few words: ``epyc 9654, 48 cores, ddr5-4800-12ch``."""

from __future__ import annotations

import re

import msgspec

from cpubound.errors import UsageError
from cpubound.machine.cloud_instances import CloudInstance, find_instance
from cpubound.machine.cpu_names import find_cpu
from cpubound.machine.known_cpus import KnownCpu
from cpubound.machine.memory_kind import MEMORY_WORDS, MemoryKind, memory_of
from cpubound.units import format_count, format_rate

MAX_WORDS = 400
MAX_SOCKETS = 8
MAX_CORES = 4096
MAX_THREADS = 4 * MAX_CORES
# One channel of DDR3-800 at a tenth of its peak, and all of the largest HBM stacks of a node.
_BANDWIDTHS = (0.5e9, 50e12)
_GB_PER_UNIT = {"mb": 1e6, "gb": 1e9, "tb": 1e12}

_CLOUD = re.compile(r"\s*([a-z]+)\s*:\s*([a-z0-9][a-z0-9._-]*)")
_BANDWIDTH = re.compile(
    r"(?:\bbandwidth\s*[=:]?\s*)?(?<![\d.])(\d{1,9}(?:\.\d{1,6})?)\s*([mgt]b)/s"
)
_SOCKETS = re.compile(r"(?<![\d.])(\d{1,9})[\s-]*sockets?\b|^\s*(\d{1,9})\s*[x×]\s+(?=[a-z])")
# "32-Core Processor" is part of AMD's names, not a wish.
_CORES = re.compile(r"(?<![\w.-])(\d{1,9})[\s-]*cores?\b(?!\s*processor)")
_CAPACITY = re.compile(r"(?:\d+\s*x\s*)?\d+\s*[gt]i?b(?:\s+(?:of\s+)?(?:ram|memory))?")
_THREADS = re.compile(r"(?<![\w.-])(\d{1,9})[\s-]*(?:hardware\s+)?(?:threads?|vcpus?)\b")


class DescribedMachine(msgspec.Struct, frozen=True, kw_only=True):
    """What was understood of the words; ``notes`` says what was assumed or contradicts the name.

    ``cores`` and ``threads`` (hardware threads) are of the whole machine, ``memory`` of one socket.
    ``memory_given`` tells words from what the CPU takes at most. ``read_bytes_per_s`` is a measured
    bandwidth of the whole machine, where one was given.
    """

    words: str
    cpu: KnownCpu | None
    sockets: int
    cores: int | None
    threads: int | None
    memory: MemoryKind | None
    memory_given: bool
    read_bytes_per_s: float | None
    notes: tuple[str, ...]

    @property
    def peak_bytes_per_s(self) -> float | None:
        """Peak bandwidth of all sockets together: channels × width × transfers."""
        if self.memory is None or self.memory.bytes_per_s is None:
            return None
        return self.sockets * self.memory.bytes_per_s


class _Words(msgspec.Struct, frozen=True, kw_only=True):
    """What the words say themselves; ``name`` is what is left of them."""

    name: str
    sockets: int | None
    cores: int | None
    threads: int | None
    memory: MemoryKind | None
    read_bytes_per_s: float | None


def describe_machine(words: str) -> DescribedMachine:
    """Understand a machine described in words: a CPU's name or a cloud's type, and what differs.

    Words win over what is known of the CPU; a note says where they contradict it.

    Raises ``UsageError`` for a name that is not known (naming the nearest), for numbers that no
    machine has, and for words that mean nothing.
    """
    if len(words) > MAX_WORDS:
        raise UsageError(f"too long for a machine ({len(words)} characters): at most {MAX_WORDS}")
    said = _read_words(words.lower())
    cloud = _CLOUD.fullmatch(said.name)
    instance = None if cloud is None else find_instance(cloud[1], cloud[2])
    cpu = _find_cpu(said, instance)
    notes = [] if instance is None or cpu is None else _instance_notes(instance, cpu)
    cores = said.cores or (instance.cores if instance is not None else None)
    sockets = said.sockets or _sockets_for(cores if instance else None, cpu)
    memory = _memory(said, cpu, notes)
    if cpu is not None:
        notes += _core_notes(cpu, sockets, cores)
    return DescribedMachine(
        words=words,
        cpu=cpu,
        sockets=sockets,
        cores=cores or _all(cpu.core_count if cpu else None, sockets),
        threads=said.threads or _threads(cpu, sockets, cores, instance),
        memory=memory,
        memory_given=said.memory is not None,
        read_bytes_per_s=said.read_bytes_per_s,
        notes=tuple(notes),
    )


def _read_words(words: str) -> _Words:
    rest, memory = _take_memory(words)
    rest, bandwidth = _take(_BANDWIDTH, rest)
    rest, sockets = _take(_SOCKETS, rest)
    rest, cores = _take(_CORES, rest)
    rest, threads = _take(_THREADS, rest)
    return _Words(
        name=", ".join(_parts(rest)),
        sockets=_count(sockets, "sockets", MAX_SOCKETS),
        cores=_count(cores, "cores", MAX_CORES),
        threads=_count(threads, "threads", MAX_THREADS),
        memory=memory,
        read_bytes_per_s=_bandwidth(bandwidth),
    )


def _parts(words: str) -> list[str]:
    """Split what is left at commas, without the amount of memory, which tells no speed."""
    parts = (" ".join(part.split()) for part in re.split("[,;]", words))
    return [part for part in parts if part and _CAPACITY.fullmatch(part) is None]


def _take(pattern: re.Pattern[str], words: str) -> tuple[str, re.Match[str] | None]:
    """Cut the first match out of the words."""
    match = pattern.search(words)
    if match is None:
        return words, None
    return f"{words[: match.start()]} {words[match.end() :]}", match


def _take_memory(words: str) -> tuple[str, MemoryKind | None]:
    rest, match = _take(MEMORY_WORDS, words)
    if match is None:
        return rest, None
    if MEMORY_WORDS.search(rest) is not None:
        raise UsageError(f"two kinds of memory in one machine ({words.strip()}): give one")
    return rest, memory_of(match)


def _count(match: re.Match[str] | None, noun: str, most: int) -> int | None:
    if match is None:
        return None
    number = int(next(group for group in match.groups() if group is not None))
    if not 1 <= number <= most:
        raise UsageError(f"no machine has this many {noun} ({number}): give 1 to {most}")
    return number


def _bandwidth(match: re.Match[str] | None) -> float | None:
    if match is None:
        return None
    rate = float(match[1]) * _GB_PER_UNIT[match[2]]
    low, high = _BANDWIDTHS
    if not low <= rate <= high:
        raise UsageError(
            f"no memory is this fast or slow ({match[0].strip()}): give the bandwidth that was "
            "measured, as in bandwidth=85GB/s"
        )
    return rate


def _find_cpu(said: _Words, instance: CloudInstance | None) -> KnownCpu | None:
    if instance is not None:
        return find_cpu(instance.cpus[0])
    if said.name:
        return _find_by_name(said.name)
    if said.memory is None and said.read_bytes_per_s is None:
        raise UsageError(
            "no machine is described: give a CPU's name, and cores and memory where they differ, "
            "as in epyc 9654, 48 cores, ddr5-4800-12ch"
        )
    return None


def _find_by_name(name: str) -> KnownCpu:
    """Find a CPU; say which part is not understood where the first one is its name."""
    try:
        return find_cpu(name)
    except UsageError:
        first, *rest = name.split(", ")
        if not rest:
            raise
    found = find_cpu(first)
    raise UsageError(
        f"not understood ({', '.join(rest)}): after {found.name} give cores, threads, sockets, "
        "memory or bandwidth, as in 8 cores, ddr5-5600-2ch"
    )


def _instance_notes(instance: CloudInstance, cpu: KnownCpu) -> list[str]:
    note = f"{instance.vcpus} vCPUs on {format_count(instance.cores, 'core')} of {cpu.name}"
    if cpu.core_count is not None and instance.cores < cpu.core_count:
        note += ", whose memory other tenants share"
    if len(instance.cpus) > 1:
        note += f"; the type also runs on {' or '.join(instance.cpus[1:])}: name it if it does"
    return [note]


def _sockets_for(instance_cores: int | None, cpu: KnownCpu | None) -> int:
    """Sockets that an instance of so many cores spans; one where nothing tells."""
    per_socket = cpu.core_count if cpu is not None else None
    if instance_cores is None or per_socket is None:
        return 1
    return -(-instance_cores // per_socket)


def _core_notes(cpu: KnownCpu, sockets: int, cores: int | None) -> list[str]:
    notes = []
    known = _all(cpu.core_count, sockets)
    if cores is not None and known is not None and cores > known:
        notes.append(
            f"{cores} cores as given: {cpu.name} has {known} in {format_count(sockets, 'socket')}"
        )
    if cpu.max_sockets is not None and sockets > cpu.max_sockets:
        notes.append(f"{sockets} sockets as given: {cpu.name} is for at most {cpu.max_sockets}")
    return notes


def _memory(said: _Words, cpu: KnownCpu | None, notes: list[str]) -> MemoryKind | None:
    """Choose the memory of a socket, with a note where it is assumed or unusual."""
    given, fastest = said.memory, None if cpu is None else cpu.fastest_memory
    if cpu is None or fastest is None:
        if given is not None and given.width_bits is None:
            notes.append(f"channels are not told: give them, as in {given.words}-2ch")
        return given
    if given is None:
        if said.read_bytes_per_s is None:
            notes.append(
                f"memory taken as {_described(fastest)}, the fastest that {cpu.name} takes: give "
                f"its own if it is slower, as in {cpu.memory[0].words}"
            )
        return fastest
    same = [kind for kind in cpu.memory if kind.type == given.type]
    best = max(same, key=lambda kind: kind.bytes_per_s or 0.0, default=fastest)
    if given.width_bits is None:
        given = msgspec.structs.replace(given, width_bits=best.width_bits)
        notes.append(f"memory taken as {_described(given)}, on all channels of {cpu.name}")
    if not same or not _within(given, best):
        takes = ", ".join(kind.words for kind in cpu.memory)
        notes.append(f"{_described(given)} as given: {cpu.name} officially takes up to {takes}")
    return given


def _within(given: MemoryKind, best: MemoryKind) -> bool:
    # Makers round the speed of a grade to either side: 2666 and 2667, 4266 and 4267.
    faster = given.transfers_per_s > best.transfers_per_s + 2e6
    return not faster and (given.width_bits or 0) <= (best.width_bits or 0)


def _described(memory: MemoryKind) -> str:
    return f"{memory.words} ({format_rate(memory.bytes_per_s or 0.0)})"


def _threads(
    cpu: KnownCpu | None, sockets: int, cores: int | None, instance: CloudInstance | None
) -> int | None:
    if instance is not None:
        if cores is None or cores == instance.cores:
            return instance.vcpus
        return cores * instance.vcpus_per_core
    if cpu is None or cpu.threads is None or cpu.core_count is None:
        return None
    if cores is None or cores == cpu.core_count * sockets:
        return cpu.threads * sockets
    # Where only some cores have two threads, part of the cores tells nothing.
    per_core, mixed = divmod(cpu.threads, cpu.core_count)
    return None if mixed else cores * per_core


def _all(per_socket: int | None, sockets: int) -> int | None:
    return None if per_socket is None else per_socket * sockets
