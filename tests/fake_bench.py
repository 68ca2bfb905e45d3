"""A kernel bench whose bandwidth is given by the test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from cpubound.kernels.values import Measurement


@dataclass(kw_only=True)
class FakeBench:
    threads: int
    page_kind: str
    cpus: tuple[int, ...] | None
    set_bytes: int
    bytes_per_s: float
    lab: FakeLab

    def sample(self) -> float:
        self.lab.order.append((self.page_kind, self.threads))
        if self.lab.interrupt_after is not None and len(self.lab.order) > self.lab.interrupt_after:
            raise KeyboardInterrupt
        return self.set_bytes / self.bytes_per_s

    def measurement(self, samples_s: Sequence[float]) -> Measurement:
        return Measurement(
            kernel="read",
            isa="portable",
            threads=self.threads,
            cpus=None if self.lab.refuses_pinning else self.cpus,
            page_kind=self.lab.given_pages or self.page_kind,
            working_set_bytes=self.set_bytes,
            bytes_per_pass=self.set_bytes,
            samples_s=tuple(samples_s),
        )


@dataclass(kw_only=True)
class FakeLab:
    """Opens fake benches and records the order of samples and how many were open at once."""

    bytes_per_s: dict[int, float]
    given_pages: str | None = None
    refuses_pinning: bool = False
    interrupt_after: int | None = None
    order: list[tuple[str, int]] = field(default_factory=list)
    now_open: int = 0
    most_open: int = 0

    @contextmanager
    def open(
        self,
        kernel: str,
        *,
        threads: int,
        working_set_bytes: int,
        page_kind: str,
        cpus: tuple[int, ...] | None,
    ) -> Iterator[FakeBench]:
        self.now_open += 1
        self.most_open = max(self.most_open, self.now_open)
        try:
            yield FakeBench(
                threads=threads,
                page_kind=page_kind,
                cpus=cpus,
                set_bytes=working_set_bytes,
                bytes_per_s=self.bytes_per_s[threads],
                lab=self,
            )
        finally:
            self.now_open -= 1
