"""The whole calibration: machine, bandwidth, engine -> MachineProfile."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory

from cpubound import __version__
from cpubound.calibration.bandwidth import (
    MIN_WORKING_SET_BYTES,
    REFERENCE_KERNEL,
    BandwidthCell,
    OpenBench,
    Progress,
    ReferenceReader,
    measure_bandwidth,
    open_references,
    working_set_bytes,
)
from cpubound.calibration.engine_stage import WriteModel, calibrate_engine
from cpubound.calibration.plan import Plan, probe_bytes
from cpubound.calibration.probes import plan_probes
from cpubound.calibration.threads import placement, thread_counts
from cpubound.engine.runner import Runner
from cpubound.errors import CpuboundError
from cpubound.kernels.values import Measurement
from cpubound.machine.values import Machine
from cpubound.profile import (
    EngineCalibration,
    MachineProfile,
    SaturationPoint,
    find_saturation,
    judge_noise,
)

PAGE_KINDS = ("anon_4k", "anon_2m")
# The engine runs at no more thread counts than this: each costs every probe once more.
MAX_ENGINE_COUNTS = 6


def calibrate(
    machine: Machine,
    plan: Plan,
    *,
    open_bench: OpenBench,
    runner: Runner | None,
    write_model: WriteModel,
    progress: Progress,
    keep_partial: Callable[[MachineProfile], None] = lambda _: None,
    temporary_folder: Path | None = None,
) -> MachineProfile:
    """Measure the machine and, through ``runner``, llama.cpp on it.

    Parameters
    ----------
    open_bench : opens a kernel bench (``cpubound.kernels.open_kernel``).
    runner : the engine, or None to leave its stage out.
    write_model : writes a probe file.
    keep_partial : given the profile so far when an interrupt ends the engine stage.

    Raises
    ------
    MachineError : memory cannot be had, or there is no space for the probes.
    """
    started = time.monotonic()
    counts = thread_counts(machine)
    available = _available_bytes(machine)
    cells = _bandwidth_cells(machine, plan.kernels, counts)
    set_bytes = working_set_bytes(machine.last_level_cache_bytes, available, MIN_WORKING_SET_BYTES)
    budget = max(set_bytes, (available or 4 * set_bytes) // 4)
    bandwidth = measure_bandwidth(
        cells,
        open_bench=open_bench,
        set_bytes=set_bytes,
        memory_bytes=budget,
        rounds=plan.bandwidth_rounds,
        seconds=plan.bandwidth_seconds,
        progress=progress,
    )
    warnings = list(_bandwidth_warnings(cells, bandwidth))
    weather = _relative_rates(bandwidth)

    def build(engine: EngineCalibration | None, reference: Sequence[float]) -> MachineProfile:
        return MachineProfile(
            machine=machine,
            bandwidth=bandwidth,
            saturation=_saturation(bandwidth),
            noise=judge_noise((*weather, *reference), time.monotonic() - started),
            engine=engine,
            warnings=tuple(warnings),
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            cpubound_version=__version__,
        )

    if runner is None:
        return build(None, ())
    engine_counts = engine_thread_counts(counts)
    with ExitStack() as stack:
        reference = open_references(
            stack,
            [c for c in cells if _is_reference(c) and c.threads in engine_counts],
            open_bench=open_bench,
            set_bytes=set_bytes,
        )
        try:
            engine, failures = _engine_stage(
                machine,
                plan,
                runner,
                engine_counts,
                write_model,
                reference,
                available,
                progress,
                temporary_folder,
            )
        except (KeyboardInterrupt, CpuboundError) as error:
            warnings.append(
                f"the engine stage failed: {error}"
                if isinstance(error, CpuboundError)
                else "interrupted: there is no engine stage"
            )
            keep_partial(build(None, reference.relative_samples()))
            raise
        warnings += failures
        return build(engine, reference.relative_samples())


def engine_thread_counts(counts: Sequence[int]) -> tuple[int, ...]:
    """Thin the thread counts to at most six, evenly over their logarithm, ends kept."""
    if len(counts) <= MAX_ENGINE_COUNTS:
        return tuple(counts)
    ratio = (counts[-1] / counts[0]) ** (1 / (MAX_ENGINE_COUNTS - 1))
    wanted = [counts[0] * ratio**step for step in range(MAX_ENGINE_COUNTS)]
    return tuple(sorted({min(counts, key=lambda c: abs(c / w - 1)) for w in wanted}))


def _engine_stage(
    machine: Machine,
    plan: Plan,
    runner: Runner,
    counts: Sequence[int],
    write_model: WriteModel,
    reference: ReferenceReader,
    available: int | None,
    progress: Progress,
    temporary_folder: Path | None,
) -> tuple[EngineCalibration, tuple[str, ...]]:
    size = probe_bytes(plan, machine.last_level_cache_bytes, available)
    # Repacked types hold a second copy, so a fifth may become a quarter.
    open_bytes = max(2 * size, (available or 16 * size) // 5)
    with TemporaryDirectory(prefix="cpubound-", dir=temporary_folder) as folder:
        return calibrate_engine(
            runner,
            plan_probes(plan, size),
            plan,
            thread_counts=counts,
            folder=Path(folder),
            write_model=write_model,
            reference=reference,
            open_bytes=open_bytes,
            progress=progress,
        )


def _available_bytes(machine: Machine) -> int | None:
    known = [m for m in (machine.memory_available_bytes, machine.memory_limit_bytes) if m]
    return min(known) if known else None


def _bandwidth_cells(
    machine: Machine, kernels: Sequence[str], counts: Sequence[int]
) -> list[BandwidthCell]:
    """Every kernel on small pages, as weights lie in a mapped file; ``read`` on huge ones too."""
    kinds = (
        PAGE_KINDS if machine.transparent_huge_pages in ("always", "madvise") else PAGE_KINDS[:1]
    )
    return [
        BandwidthCell(
            kernel=kernel, threads=threads, page_kind=kind, cpus=placement(machine, threads)
        )
        for kernel in kernels
        for kind in (kinds if kernel == REFERENCE_KERNEL else PAGE_KINDS[:1])
        for threads in counts
    ]


def _is_reference(cell: BandwidthCell) -> bool:
    return cell.kernel == REFERENCE_KERNEL and cell.page_kind == PAGE_KINDS[0]


def _bandwidth_warnings(
    cells: Sequence[BandwidthCell], measured: Sequence[Measurement]
) -> list[str]:
    """Say where the system gave other pages than were asked for, or refused to pin."""
    found = []
    for cell, measurement in zip(cells, measured, strict=True):
        if measurement.page_kind != cell.page_kind:
            found.append(
                f"{cell.page_kind} pages were asked for, {measurement.page_kind} were given"
            )
        if cell.cpus is not None and measurement.cpus is None:
            found.append("threads could not be pinned to CPUs: they were measured unpinned")
    return list(dict.fromkeys(found))


def _relative_rates(measured: Sequence[Measurement]) -> tuple[float, ...]:
    """Return all samples in the order of their rounds, each over its own median."""
    relative = []
    for round_number in range(max(len(m.samples_s) for m in measured)):
        for m in measured:
            if round_number < len(m.samples_s):
                rate = m.bytes_per_pass / m.samples_s[round_number]
                relative.append(rate / m.median_bytes_per_s)
    return tuple(relative)


def _saturation(measured: Sequence[Measurement]) -> tuple[SaturationPoint, ...]:
    found = []
    for kernel in dict.fromkeys(m.kernel for m in measured):
        rows = [m for m in measured if m.kernel == kernel and m.page_kind == PAGE_KINDS[0]]
        threads = find_saturation(rows)
        if threads is not None:
            found.append(SaturationPoint(kernel=kernel, threads=threads))
    return tuple(found)
