"""A kernel bench whose bandwidth is given by the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from cpubound.errors import MachineError
from cpubound.kernels.values import Measurement


@dataclass(kw_only=True)
class FakeBench:
    kernel: str
    threads: int
    page_kind: str
    cpus: tuple[int, ...] | None
    set_bytes: int
    bytes_per_s: float
    lab: FakeLab

    def sample(self) -> float:
        self.lab.order.append((self.page_kind, self.threads))
        self.lab.kernels.append(self.kernel)
        if self.lab.interrupt_after is not None and len(self.lab.order) > self.lab.interrupt_after:
            raise KeyboardInterrupt
        seconds = max(self.set_bytes, 1) / self.bytes_per_s
        self.lab.now_s += max(seconds, self.lab.sample_s)
        return seconds

    def measurement(self, samples_s: Sequence[float]) -> Measurement:
        return Measurement(
            kernel=self.kernel,
            isa="portable",
            threads=self.threads,
            cpus=None if self.lab.refuses_pinning else self.cpus,
            page_kind=self.lab.given_pages or self.page_kind,
            working_set_bytes=self.set_bytes,
            bytes_per_pass=self.set_bytes,
            flops_per_pass=100 * self.threads,
            units_per_thread=1,
            samples_s=tuple(samples_s),
        )


@dataclass(kw_only=True)
class FakeLab:
    """Opens fake benches and records the order of samples and how many were open at once.

    ``bytes_per_s`` gives the rate by thread count, or by the team's CPUs. Each further buffer
    is slower or faster by the next of ``buffer_factors``. The lab's own clock ``now_s`` goes on
    by ``sample_s`` for a sample, and by what touching the memory takes for a buffer.
    """

    bytes_per_s: Mapping[int, float] | Callable[[tuple[int, ...]], float]
    given_pages: str | None = None
    refuses_pinning: bool = False
    refuses_pages: tuple[str, ...] = ()
    interrupt_after: int | None = None
    buffer_factors: Sequence[float] = (1.0,)
    sample_s: float = 0.0
    touch_bytes_per_s: float = float("inf")
    order: list[tuple[str, int]] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    opened: list[tuple[str, str, int, int | None]] = field(default_factory=list)
    now_open: int = 0
    most_open: int = 0
    now_s: float = 0.0

    def clock(self) -> float:
        return self.now_s

    @contextmanager
    def open(
        self,
        kernel: str,
        *,
        threads: int,
        working_set_bytes: int,
        page_kind: str,
        cpus: tuple[int, ...] | None,
        isa: str | None = None,
        touch_cpu: int | None = None,
    ) -> Iterator[FakeBench]:
        if page_kind in self.refuses_pages:
            raise MachineError(f"no {page_kind} pages: use others")
        nth = sum(1 for row in self.opened if row == (kernel, page_kind, threads, touch_cpu))
        self.opened.append((kernel, page_kind, threads, touch_cpu))
        self.now_open += 1
        self.most_open = max(self.most_open, self.now_open)
        self.now_s += working_set_bytes / self.touch_bytes_per_s / threads
        rate = (
            self.bytes_per_s(cpus or tuple(range(threads)))
            if callable(self.bytes_per_s)
            else self.bytes_per_s[threads]
        )
        try:
            yield FakeBench(
                kernel=kernel,
                threads=threads,
                page_kind=page_kind,
                cpus=cpus,
                set_bytes=working_set_bytes,
                bytes_per_s=rate * self.buffer_factors[nth % len(self.buffer_factors)],
                lab=self,
            )
        finally:
            self.now_open -= 1
