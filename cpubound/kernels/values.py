"""What a kernel moves and what a run of it gave: ``KernelSpec`` and ``Measurement``."""

from __future__ import annotations

import msgspec

from cpubound import stats


class KernelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel for one instruction set, as declared beside its C code.

    Traffic is per element of the kernel's index space and counts what the code asks for:
    what the hardware adds (write-allocate) stands apart in ``write_allocate_bytes``.
    """

    name: str
    # "portable", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512bf16", "neon", "dotprod"
    isa: str
    variant: str = ""  # what sets it apart from another of the same name and isa
    dtype: str
    read_bytes: float
    write_bytes: float
    write_allocate_bytes: float
    flops: float  # operations: a multiply-add is two, in integers too


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """Timed passes of one kernel over one working set by a team of threads."""

    kernel: str
    isa: str
    variant: str = ""
    threads: int
    cpus: tuple[int, ...] | None  # where each thread was pinned; None if it was not
    page_kind: str  # as obtained: "anon_4k", "anon_2m", "file"; "anon" if undetermined
    working_set_bytes: int
    bytes_per_pass: int  # read + written as declared, without write-allocate
    write_allocate_bytes_per_pass: int = 0  # read by the hardware before temporal stores
    flops_per_pass: int = 0
    units_per_thread: int = 0  # elements, cache lines, rows or turns of the largest share
    samples_s: tuple[float, ...]  # seconds per pass of the slowest thread, every sample

    @property
    def best_bytes_per_s(self) -> float:
        """Bandwidth of the fastest sample: the quiet machine."""
        return self.bytes_per_pass / min(self.samples_s)

    @property
    def median_bytes_per_s(self) -> float:
        """Bandwidth of the median sample: the machine as it was."""
        return self.bytes_per_pass / stats.median(self.samples_s)

    @property
    def best_flops_per_s(self) -> float:
        """Operations per second of the fastest sample."""
        return self.flops_per_pass / min(self.samples_s)

    @property
    def median_flops_per_s(self) -> float:
        """Operations per second of the median sample."""
        return self.flops_per_pass / stats.median(self.samples_s)

    @property
    def best_seconds_per_unit(self) -> float:
        """Seconds of a thread per unit in the fastest sample: a load's latency, for ``latency``."""
        return min(self.samples_s) / self.units_per_thread

    @property
    def spread(self) -> float:
        """Half the 5 … 95 % range of the samples over their median."""
        return stats.relative_spread(self.samples_s)
