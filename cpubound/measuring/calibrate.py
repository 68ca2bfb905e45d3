"""The whole calibration: machine, bandwidth, engine -> MachineProfile."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path

from cpubound import __version__
from cpubound.engine.runner import Runner, TurnTaker
from cpubound.errors import CpuboundError
from cpubound.machine.activity import read_activity
from cpubound.machine.files import Root
from cpubound.machine.values import Machine
from cpubound.measuring.bandwidth import (
    OpenBench,
    Progress,
    ReferenceReader,
    open_references,
)
from cpubound.measuring.buffers import BufferSizes, model_bytes
from cpubound.measuring.core_stage import CoreFindings, CoreInstruments, measure_cores
from cpubound.measuring.engine_stage import WriteModel, calibrate_engine
from cpubound.measuring.memory_stage import MemoryFindings, measure_memory, reference_cell
from cpubound.measuring.noise import assess_noise, noise_warnings
from cpubound.measuring.plan import Plan, probe_bytes
from cpubound.measuring.probes import plan_probes
from cpubound.measuring.threads import placement
from cpubound.profile.values import EngineCalibration, MachineProfile
from cpubound.temporary import model_folder

# The engine runs at no more thread counts than this: each costs every probe once more.
MAX_ENGINE_COUNTS = 6
# How many times as large as the last-level cache a probe is that is decoded alone.
ALONE_CACHES = 4


def calibrate(
    machine: Machine,
    plan: Plan,
    *,
    open_bench: OpenBench,
    runner: Runner | None,
    write_model: WriteModel,
    progress: Progress,
    keep: Callable[[MachineProfile, bool], None] = lambda _profile, _is_complete: None,
    temporary_folder: Path | None = None,
    instruments: CoreInstruments | None = None,
) -> MachineProfile:
    """Measure the machine and, through ``runner``, llama.cpp on it.

    Parameters
    ----------
    open_bench : opens a kernel bench (``cpubound.kernels.run.open_kernel``).
    runner : the engine, or None to leave its stage out.
    write_model : writes a probe file.
    keep : given the profile, before anything is put away, and True; or what there is of it when
        an interrupt or any error ends a stage behind that of memory, and False.
    instruments : what measures cores and caches; None leaves that stage out.

    Raises
    ------
    MachineError : memory cannot be had, or there is no space for the probes.
    """
    started = time.monotonic()
    cpus = frozenset(machine.allowed_cpus)
    before = read_activity(Root(), cpus)
    memory = measure_memory(machine, plan, open_bench=open_bench, progress=progress)
    after = read_activity(Root(), cpus)
    cores = CoreFindings()
    engine: EngineCalibration | None = None
    relative_rates: Sequence[float] = ()
    warnings = [*memory.warnings]
    is_complete = False

    def build() -> MachineProfile:
        noise = assess_noise(
            (*memory.relative_rates, *relative_rates),
            time.monotonic() - started,
            before=before,
            after=after,
            activity_s=memory.seconds,
            page_faults=memory.page_faults,
            buffer_medians=memory.buffer_medians,
        )
        return MachineProfile(
            machine=machine,
            bandwidth=memory.bandwidth,
            saturation=memory.saturation,
            placements=memory.placements,
            nodes=memory.nodes,
            working_sets=cores.working_sets,
            levels=cores.levels,
            peak=cores.peak,
            barriers=cores.barriers,
            timer_resolution_s=cores.timer_resolution_s,
            noise=noise,
            engine=engine,
            warnings=(*warnings, *noise_warnings(noise, machine)),
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            cpubound_version=__version__,
        )

    try:
        cores = _core_stage(machine, plan, memory, instruments, open_bench, progress)
        warnings += cores.warnings
        if runner is not None:
            with ExitStack() as stack:
                counts = engine_thread_counts(memory.thread_counts)
                ready = BufferSizes(machine).kept_ready(counts)
                cells = [reference_cell(machine, threads) for threads in ready]
                reference = open_references(stack, cells, open_bench=open_bench)
                folder = stack.enter_context(model_folder(temporary_folder))
                try:
                    engine, failures = _engine_stage(
                        machine,
                        plan,
                        runner,
                        counts,
                        write_model,
                        reference,
                        model_bytes(machine),
                        progress,
                        folder,
                    )
                    warnings += failures
                finally:
                    relative_rates = reference.relative_samples()
        is_complete = True
    except BaseException as error:
        warnings.append(f"calibration ended early: {_reason(error)}")
        raise
    finally:
        profile = build()
        keep(profile, is_complete)
    return profile


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return str(error) if isinstance(error, CpuboundError) else f"{type(error).__name__}: {error}"


def engine_thread_counts(counts: Sequence[int]) -> tuple[int, ...]:
    """Thin the thread counts to at most six, evenly over their logarithm, ends kept."""
    if len(counts) <= MAX_ENGINE_COUNTS:
        return tuple(counts)
    ratio = (counts[-1] / counts[0]) ** (1 / (MAX_ENGINE_COUNTS - 1))
    wanted = [counts[0] * ratio**step for step in range(MAX_ENGINE_COUNTS)]
    return tuple(sorted({min(counts, key=lambda c: abs(c / w - 1)) for w in wanted}))


def _core_stage(
    machine: Machine,
    plan: Plan,
    memory: MemoryFindings,
    instruments: CoreInstruments | None,
    open_bench: OpenBench,
    progress: Progress,
) -> CoreFindings:
    if instruments is None:
        return CoreFindings()
    return measure_cores(
        machine,
        memory.thread_counts,
        open_bench=open_bench,
        instruments=instruments,
        largest_bytes=BufferSizes(machine).of(placement(machine, 1)),
        sizes_per_octave=plan.sizes_per_octave,
        read_isa=memory.read_isa,
        seconds=plan.core_seconds,
        progress=progress,
    )


def _engine_stage(
    machine: Machine,
    plan: Plan,
    runner: Runner,
    counts: Sequence[int],
    write_model: WriteModel,
    reference: ReferenceReader,
    available: int | None,
    progress: Progress,
    folder: Path,
) -> tuple[EngineCalibration, tuple[str, ...]]:
    size = probe_bytes(plan, available)
    if not isinstance(runner, TurnTaker):
        # Decoded alone, a probe should not live in the cache.
        beyond = ALONE_CACHES * (machine.last_level_cache_bytes or 0)
        size = max(size, min(beyond, (available or 16 * beyond) // 16))
    # Repacked types hold a second copy, so a fifth may become a quarter.
    open_bytes = max(2 * size, (available or 200 * size) // 5)
    return calibrate_engine(
        runner,
        plan_probes(plan, size, machine.last_level_cache_bytes),
        plan,
        thread_counts=counts,
        folder=folder,
        write_model=write_model,
        reference=reference,
        open_bytes=open_bytes,
        last_level_cache_bytes=machine.last_level_cache_bytes,
        progress=progress,
    )
