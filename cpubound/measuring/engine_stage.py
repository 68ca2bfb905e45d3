"""The engine stage: run the probes through llama.cpp, whose times the cost model is fitted to.

Probes of weights and of attention take turns: single tokens of all of them in random order,
so that no cache holds anything of a probe when its next token comes, as in a model many times
larger. What a small model gains from the cache is measured on models decoded alone. An engine
that can only run one model at a time decodes every probe alone, and the caches help it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from cpubound import stats
from cpubound.cost.engine_rates import derive_tables
from cpubound.cost.terms import Grid
from cpubound.engine.runner import Runner, TurnTaker
from cpubound.engine.values import RunSettings
from cpubound.errors import EngineUnavailable, MachineError, ModelFileError
from cpubound.measuring.bandwidth import Progress
from cpubound.measuring.plan import Plan
from cpubound.measuring.probe_runs import MeasuredCell
from cpubound.measuring.probes import Probe, ProbeCell, probe_grid, probe_traffic
from cpubound.model.values import ModelSpec
from cpubound.profile.values import EngineCalibration
from cpubound.units import format_binary_bytes

# Timed tokens of each probe in one go: few, so that all probes see every moment.
PASSES = 4
# Probes that take turns are together this many times as large as the last-level cache:
# more at once would leave pages untouched for so long that they cost more.
TURN_CACHES, TURN_BYTES = 20, 256 * 2**20
# Prompts are bound by computing, which varies less than what memory sets.
PROMPT_ROUNDS = 3
# A run of one model alone is about this long.
RUN_SECONDS = 0.10
MIN_TOKENS, MAX_TOKENS = 6, 48
# Within one physical batch of llama.cpp.
MAX_PROMPT_TOKENS = 512
MOST_PROMPT_REPETITIONS, FEWEST_PROMPT_REPETITIONS = 6, 3
# First guess of a run's length, before the probe was seen: slow kernels.
GUESSED_BYTES_PER_S = 8e9

Reference = Callable[[int], float]
WriteModel = Callable[[ModelSpec, Path], None]


def calibrate_engine(
    runner: Runner,
    probes: Sequence[Probe],
    plan: Plan,
    *,
    thread_counts: Sequence[int],
    folder: Path,
    write_model: WriteModel,
    reference: Reference,
    open_bytes: int,
    last_level_cache_bytes: int | None,
    progress: Progress,
    seed: int = 0,
) -> tuple[EngineCalibration, tuple[str, ...]]:
    """Measure the probes in shuffled rounds; return what they took, the fit, and warnings.

    Parameters
    ----------
    folder : where probe files are written; they are removed as soon as nothing needs them.
    reference : gives the read bandwidth right now at a thread count.
    open_bytes : how many bytes of probes may be open at once.
    last_level_cache_bytes : what probes that take turns must exceed together.

    A probe that crashes the engine, or that it refuses, is left out with a warning; the rest
    goes on. At least one round is finished; after it the plan's time ends the stage.
    """
    grid = probe_grid(plan, probes)
    if not isinstance(runner, TurnTaker):
        probes = [replace(p, cells=_alone_only(p)) for p in probes if p.cached_bytes is None]
        grid = Grid(tokens=grid.tokens)
    cells = list(_cells(probes, plan, thread_counts, grid))
    stage = _Stage(
        runner, write_model, folder, open_bytes, reference, last_level_cache_bytes or 0, seed
    )
    deadline = time.monotonic() + plan.engine_seconds
    started = time.monotonic()
    prompts = [p for p in probes if all(c.prompt_tokens is not None for c in p.cells)]
    for probe in probes:
        if _open_size(probe) > open_bytes:
            stage.failed[probe.name] = (
                f"it takes {format_binary_bytes(_open_size(probe))}, and "
                f"{format_binary_bytes(open_bytes)} of models may be open"
            )
    groups = list(_groups([p for p in probes if p not in prompts], open_bytes))
    try:
        for _ in range(PROMPT_ROUNDS):
            for probe in stage.order.sample(prompts, len(prompts)):
                stage.visit([probe], [c for c in cells if c.probe is probe])
        number = 0
        while number == 0 or time.monotonic() < deadline:
            for group in stage.order.sample(groups, len(groups)):
                if number and time.monotonic() > deadline:
                    break
                names = {probe.name for probe in group}
                stage.visit(group, [c for c in cells if c.probe.name in names])
                share = (time.monotonic() - started) / max(plan.engine_seconds, 1e-9)
                progress("llama.cpp", min(share, 1.0))
            number += 1
    finally:
        stage.close()
    seen = [cell for cell in cells if cell.runs_s]
    failures = {f"probe {name} failed: {reason}": None for name, reason in stage.failed.items()}
    if stage.joint_failure is not None:
        failures[f"probes failed when they took turns: {stage.joint_failure}"] = None
    identity = runner.identity()
    records = tuple(cell.record() for cell in seen)
    tables, open_rates = derive_tables(records)
    engine = EngineCalibration(
        name=identity.name,
        version=identity.version,
        build=identity.build,
        features=identity.features,
        tables=tables,
        noise=_noise_floor(seen),
        probes=records,
    )
    return engine, (*failures, *open_rates)


def _alone_only(probe: Probe) -> tuple[ProbeCell, ...]:
    """Return a probe's cells for an engine that takes no turns."""
    alone = [replace(cell, takes_turns=False) for cell in probe.cells]
    return tuple(dict.fromkeys(alone))


def _cells(
    probes: Sequence[Probe], plan: Plan, thread_counts: Sequence[int], grid: Grid
) -> Iterator[MeasuredCell]:
    """Yield every cell; prompts, which scale with threads, at the ends of the counts."""
    fewest, most = min(thread_counts), max(thread_counts)
    for probe in probes:
        for cell in probe.cells:
            counts = list(thread_counts)
            if cell.prompt_tokens is not None:
                is_rare = probe.is_batch and cell.prompt_tokens not in plan.batch_tokens_fewest
                counts = [most] if is_rare else sorted({fewest, most})
            for threads in counts:
                measured = MeasuredCell(
                    probe=probe, cell=cell, threads=threads, tokens=PASSES + 1, grid=grid
                )
                if not cell.takes_turns:
                    measured.tokens = _first_tokens(measured)
                yield measured


def _groups(probes: Sequence[Probe], open_bytes: int) -> Iterator[list[Probe]]:
    """Split the probes into as few groups as fit into the memory, of like sizes."""
    sizes = {probe.name: _open_size(probe) for probe in probes}
    number = max(1, -(-sum(sizes.values()) // max(open_bytes, 1)))
    groups: list[list[Probe]] = [[] for _ in range(min(number, len(probes)))]
    for probe in sorted(probes, key=lambda p: -sizes[p.name]):
        min(groups, key=lambda g: sum(sizes[p.name] for p in g)).append(probe)
    yield from groups


def _split(cells: Sequence[MeasuredCell], at_least: int) -> list[list[MeasuredCell]]:
    """Split cells into as many parts as read ``at_least`` bytes each, one part at least."""
    parts: list[list[MeasuredCell]] = [[]]
    size = 0
    for cell in cells:
        parts[-1].append(cell)
        size += cell.turn_bytes
        if size >= at_least:
            parts.append([])
            size = 0
    rest = parts.pop()
    if parts:
        parts[-1] += rest
        return parts
    return [rest]


def _open_size(probe: Probe) -> int:
    """Return what a probe takes while it is open: its weights and its caches."""
    caches = {
        c.setting: probe_traffic(probe, c, PASSES) for c in probe.cells if c.prompt_tokens is None
    }
    return probe.file_bytes + sum(t.kv_read_bytes for t in caches.values())


class _Stage:
    """The open models and how they are run."""

    def __init__(
        self,
        runner: Runner,
        write_model: WriteModel,
        folder: Path,
        open_bytes: int,
        reference: Reference,
        cache_bytes: int,
        seed: int,
    ) -> None:
        self.order = random.Random(seed)
        self.failed: dict[str, str] = {}
        self.joint_failure: str | None = None  # of probes that run alone
        self._runner = runner
        self._write = write_model
        self._folder = folder
        self._budget = open_bytes
        self._reference = reference
        self._turn_bytes = max(TURN_CACHES * cache_bytes, TURN_BYTES)
        self._open: dict[str, tuple[Path, int]] = {}

    def visit(self, probes: Sequence[Probe], cells: Sequence[MeasuredCell]) -> None:
        """Measure the cells of a group of probes once, at every thread count."""
        self._make_room(probes)
        for threads in self.order.sample(counts := sorted({c.threads for c in cells}), len(counts)):
            mine = [c for c in cells if c.threads == threads and c.probe.name not in self.failed]
            in_turn = [c for c in mine if c.cell.takes_turns]
            alone = [c for c in mine if not c.cell.takes_turns]
            reference = self._reference(threads)
            self.order.shuffle(in_turn)
            for cells_in_turn in _split(in_turn, self._turn_bytes):
                self._rotate(cells_in_turn, reference)
            for cell in self.order.sample(alone, len(alone)):
                self._run(cell, reference)

    def close(self) -> None:
        """Close every model and remove its file."""
        for name in list(self._open):
            self._drop(name)

    def _rotate(self, cells: Sequence[MeasuredCell], reference: float) -> None:
        """Time some tokens of every cell, in turn; a probe that fails is left out."""
        while cells and isinstance(self._runner, TurnTaker):
            settings = [self._settings(cell) for cell in cells]
            try:
                samples = self._runner.rotate(
                    settings, passes=PASSES, seed=self.order.randrange(2**31)
                )
            except EngineUnavailable:
                raise
            except (MachineError, ModelFileError) as error:
                # One of them did it: each alone tells which.
                survivors = [cell for cell in cells if self._survives(cell)]
                if len(survivors) == len(cells):
                    self.joint_failure = str(error)
                    return
                cells = survivors
                continue
            for cell, row in zip(cells, samples, strict=True):
                cell.runs_s.append(row)
                cell.references.append(reference)
            return

    def _survives(self, cell: MeasuredCell) -> bool:
        if cell.probe.name in self.failed or not isinstance(self._runner, TurnTaker):
            return False
        try:
            self._runner.rotate([self._settings(cell)], passes=1, seed=0)
        except EngineUnavailable:
            raise
        except (MachineError, ModelFileError) as error:
            self.failed[cell.probe.name] = str(error)
            return False
        return True

    def _run(self, measured: MeasuredCell, reference: float) -> None:
        if measured.probe.name in self.failed:
            return
        settings = self._settings(measured)
        try:
            samples = self._runner.run(settings).samples_s
        except EngineUnavailable:
            raise
        except (MachineError, ModelFileError) as error:
            self.failed[measured.probe.name] = str(error)
            return
        measured.runs_s.append(samples)
        measured.references.append(reference)
        if measured.cell.prompt_tokens is None:
            measured.tokens = _tokens_for(stats.median(samples))

    def _settings(self, measured: MeasuredCell) -> RunSettings:
        prompt_tokens = measured.cell.prompt_tokens
        span = MAX_PROMPT_TOKENS if prompt_tokens is not None else MAX_TOKENS + 1
        deepest = max(c.setting.depth_tokens for c in measured.probe.cells)
        return RunSettings(
            model_path=str(self._open_file(measured.probe)),
            setting=structs.replace(
                measured.cell.setting,
                threads=measured.threads,
                allocated_context_tokens=deepest + span,
            ),
            tokens=measured.tokens,
            prompt_tokens=prompt_tokens,
            all_logits=measured.probe.is_batch,
        )

    def _open_file(self, probe: Probe) -> Path:
        """Return the probe's file, written if it is not there."""
        if probe.name not in self._open:
            path = probe.path(self._folder)
            self._write(probe.spec, path)
            self._open[probe.name] = (path, _open_size(probe))
        return self._open[probe.name][0]

    def _make_room(self, probes: Sequence[Probe]) -> None:
        wanted = {probe.name for probe in probes}
        needed = sum(_open_size(p) for p in probes if p.name not in self._open)
        for name in [name for name in self._open if name not in wanted]:
            if sum(size for _, size in self._open.values()) + needed <= self._budget:
                return
            self._drop(name)

    def _drop(self, name: str) -> None:
        path, _ = self._open.pop(name)
        self._runner.close_model(str(path))
        with suppress(OSError):
            path.unlink()


def _first_tokens(measured: MeasuredCell) -> int:
    """Return the tokens of a run, or how often a prompt is processed: short ones more often."""
    if measured.cell.prompt_tokens is not None:
        fewer = measured.cell.prompt_tokens // 16
        return max(FEWEST_PROMPT_REPETITIONS, MOST_PROMPT_REPETITIONS - fewer)
    traffic = probe_traffic(measured.probe, measured.cell, MIN_TOKENS)
    return _tokens_for(traffic.weights_read_bytes / GUESSED_BYTES_PER_S)


def _tokens_for(seconds_per_token: float) -> int:
    return max(MIN_TOKENS, min(MAX_TOKENS, round(RUN_SECONDS / seconds_per_token)))


def _noise_floor(cells: Sequence[MeasuredCell]) -> float:
    """Return how well one half of a cell's runs predicts the other: the median over cells."""
    decoded = [m for m in cells if m.cell.prompt_tokens is None]
    distances = [stats.split_half_distance(m.runs_s) for m in decoded]
    known = [distance for distance in distances if distance is not None]
    return stats.median(known) if known else 0.0
