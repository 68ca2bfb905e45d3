"""What ``tune`` chooses beside the best of a full grid of real runs.

    python -m calibrate tuning                        # 12 cells, about ten minutes
    python -m calibrate tuning --published rates.csv  # replay of published series, no runs

A cell is a model at a depth. Its grid is every thread count of the profile × flash-attention ×
KV types where llama.cpp allows them. All settings of a cell run in shuffled rounds, cell after
cell, several passes over; ``tune`` sees the profile only. A regret is what the choice loses
against the best of the grid; since the best of noisy runs flatters itself, the second figure lets
one half of the runs name the best and the other half judge it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import structs

from cpubound import __version__, api, stats
from cpubound.advise.tune import Recommendation
from cpubound.advise.tune.choice import flash_options
from cpubound.advise.tune.session import Session
from cpubound.cost.thread_choice import TOLERANCE, thread_counts
from cpubound.engine import open_runner
from cpubound.engine.runner import Runner
from cpubound.engine.synth import write_model
from cpubound.engine.values import RunSettings
from cpubound.model.resolve import resolve_model
from cpubound.model.values import ModelSpec
from cpubound.profile.file import load_profile
from cpubound.profile.values import MachineProfile
from cpubound.report.document import setting_fields, to_document
from cpubound.report.tables import Table, render_table
from cpubound.setting import Setting
from cpubound.temporary import model_folder, write_file

STANDARD_MODELS = (
    "llama-3.2-1b:Q4_0",
    "llama-3.2-1b:Q4_K_M",
    "qwen3-0.6b:Q8_0",
    "smollm2-135m:Q4_K_M",
)
STANDARD_DEPTHS = (0, 2048, 8192)
KV_TYPES = (("f16", "f16"), ("q8_0", "q8_0"))
# A run is short, so that many of them sample the machine's noise.
RUN_SECONDS = 0.6
MIN_TOKENS, MAX_TOKENS = 3, 48
ROUNDS_PER_VISIT = 2
MIN_PASSES = 2
_EVEN, _ODD = slice(0, None, 2), slice(1, None, 2)


@dataclass(kw_only=True)
class Tried:
    """A setting of the grid and its runs."""

    setting: Setting
    predicted_tokens_per_s: float
    runs_s: list[tuple[float, ...]] = field(default_factory=list)

    def rate(self, runs: slice = slice(None)) -> float:
        """Return the median rate over the tokens of some of the runs, in tok/s."""
        return 1 / stats.median([sample for run in self.runs_s[runs] for sample in run])


@dataclass(kw_only=True)
class TuningCell:
    """A model at a depth: what tune chose, and the grid."""

    model: str
    path: str
    depth_tokens: int
    recommendation: Recommendation
    chosen: Setting
    tune_s: float
    grid: list[Tried]
    grid_s: float = 0.0

    @property
    def choice(self) -> Tried:
        return next(tried for tried in self.grid if tried.setting == self.chosen)

    @property
    def best(self) -> Tried:
        return max(self.grid, key=lambda tried: tried.rate())

    @property
    def regret(self) -> float:
        """What the choice loses against the best, as a share of the best."""
        return 1 - self.choice.rate() / self.best.rate()

    @property
    def split_regret(self) -> float:
        """The same where one half of the runs names the best and the other judges, both ways."""
        return (self._regret_judged_by(_EVEN, _ODD) + self._regret_judged_by(_ODD, _EVEN)) / 2

    def _regret_judged_by(self, names_best: slice, judges: slice) -> float:
        best = max(self.grid, key=lambda tried: tried.rate(names_best))
        return 1 - self.choice.rate(judges) / best.rate(judges)


def main(argv: Sequence[str]) -> int:
    """Run the experiment, or the replay of published series."""
    options = _parse(argv)
    if options.published is not None:
        from calibrate.tuning_replay import print_replay

        return print_replay(options.published, options.format)
    profile = load_profile(options.profile)
    with ExitStack() as stack:
        runner = stack.enter_context(open_runner())
        folder = stack.enter_context(model_folder())
        cells = [
            cell
            for number, name in enumerate(options.models)
            for cell in plan_cells(profile, name, options.depth, folder / f"{number}.gguf")
        ]
        passes = run_grid(cells, runner, seconds=options.seconds, seed=options.seed)
    print(render_table(grid_table(cells), options.format))
    print(f"\n{grid_summary(cells, passes)}")
    if options.out is not None:
        write_file(options.out, json.dumps(grid_document(profile, cells), indent=1).encode())
    return 0


def plan_cells(
    profile: MachineProfile, name: str, depths: Sequence[int], path: Path
) -> Iterator[TuningCell]:
    """Let tune choose for a model at each depth, and lay out the grids."""
    spec = resolve_model(name)
    session = Session(profile=profile, spec=spec, thread_counts=thread_counts(profile))
    file = _model_file(spec, path)
    for depth in depths:
        started = time.perf_counter()
        advice = api.tune(spec, depth=depth, profile=profile)
        tune_s = time.perf_counter() - started
        settings = list(grid_settings(session.thread_counts, depth))
        chosen = advice.recommendation.setting
        if chosen not in settings:
            settings.append(chosen)
        yield TuningCell(
            model=name,
            path=file,
            depth_tokens=depth,
            recommendation=advice.recommendation,
            chosen=chosen,
            tune_s=tune_s,
            grid=[
                Tried(setting=s, predicted_tokens_per_s=session.predict(s).tokens_per_s)
                for s in settings
            ],
        )


def grid_settings(thread_counts: Sequence[int], depth_tokens: int) -> Iterator[Setting]:
    """Yield every thread count × KV type × flash-attention that llama.cpp allows."""
    for threads in thread_counts:
        for kv in KV_TYPES:
            for flash in flash_options(kv):
                yield Setting(
                    threads=threads,
                    depth_tokens=depth_tokens,
                    kv_type_k=kv[0],
                    kv_type_v=kv[1],
                    flash_attn=flash,
                )


def run_grid(cells: Sequence[TuningCell], runner: Runner, *, seconds: float, seed: int) -> int:
    """Visit every cell in shuffled order until the time is over; return the passes made."""
    order = random.Random(seed)
    room = {
        cell.path: max(c.depth_tokens for c in cells if c.path == cell.path) + MAX_TOKENS + 1
        for cell in cells
    }
    started = time.monotonic()
    passes = 0
    while passes < MIN_PASSES or _fits_another(started, passes, seconds):
        paths = list(room)
        for path in order.sample(paths, len(paths)):
            # Deep to shallow: a cache is cut in no time and filled anew for a deeper one.
            mine = sorted((c for c in cells if c.path == path), key=lambda c: -c.depth_tokens)
            for cell in mine:
                _visit(cell, runner, room[path], order)
        passes += 1
        print(f"pass {passes}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return passes


def _fits_another(started: float, passes: int, seconds: float) -> bool:
    elapsed = time.monotonic() - started
    return elapsed * (passes + 1) / passes <= seconds


def _visit(cell: TuningCell, runner: Runner, room: int, order: random.Random) -> None:
    started = time.monotonic()
    for _ in range(ROUNDS_PER_VISIT):
        for tried in order.sample(cell.grid, len(cell.grid)):
            wanted = round(RUN_SECONDS * tried.predicted_tokens_per_s)
            observation = runner.run(
                RunSettings(
                    model_path=cell.path,
                    setting=structs.replace(tried.setting, allocated_context_tokens=room),
                    tokens=max(MIN_TOKENS, min(MAX_TOKENS, wanted)),
                )
            )
            tried.runs_s.append(observation.samples_s)
    cell.grid_s += time.monotonic() - started


def grid_table(cells: Sequence[TuningCell]) -> Table:
    """Return a row for each cell."""
    columns = ("model", "depth", "tune", "tok/s", "best", "tok/s ", "regret", "split", "time")
    rows = tuple(
        (
            cell.model,
            str(cell.depth_tokens),
            _text(cell.chosen),
            f"{cell.choice.rate():.3g}",
            _text(cell.best.setting),
            f"{cell.best.rate():.3g}",
            f"{cell.regret * 100:.1f} %",
            f"{cell.split_regret * 100:.1f} %",
            f"1/{cell.grid_s / cell.tune_s:.0f}",
        )
        for cell in cells
    )
    return Table(columns=columns, rows=rows, right=frozenset(columns) - {"model", "tune", "best"})


def grid_summary(cells: Sequence[TuningCell], passes: int) -> str:
    """Say how many choices are within 3 % of the best."""
    within = sum(cell.regret <= TOLERANCE for cell in cells)
    split = sum(cell.split_regret <= TOLERANCE for cell in cells)
    worst = max(cells, key=lambda cell: cell.regret)
    return (
        f"{within} of {len(cells)} choices within 3 % of the best of the grid ({split} where other "
        f"runs name the best); worst {worst.regret * 100:.1f} % ({worst.model}, depth "
        f"{worst.depth_tokens}). Grid {sum(c.grid_s for c in cells):.0f} s in {passes} passes, "
        f"tune {sum(c.tune_s for c in cells):.2f} s. cpubound {__version__}."
    )


def grid_document(profile: MachineProfile, cells: Sequence[TuningCell]) -> dict[str, Any]:
    """Return everything that was seen, every sample included."""
    return {
        "schema": "cpubound.tuning/1",
        "cpu_model": profile.machine.cpu_model,
        "profile_created": profile.created,
        "noise": profile.noise.spread,
        "cells": [
            {
                "model": cell.model,
                "depth_tokens": cell.depth_tokens,
                "recommendation": to_document(cell.recommendation),
                "tune_s": cell.tune_s,
                "grid_s": cell.grid_s,
                "regret": cell.regret,
                "split_regret": cell.split_regret,
                "grid": [
                    {
                        **setting_fields(t.setting),
                        "predicted_tokens_per_s": t.predicted_tokens_per_s,
                        "tokens_per_s": t.rate(),
                        "runs_s": t.runs_s,
                    }
                    for t in cell.grid
                ],
            }
            for cell in cells
        ],
    }


def _text(s: Setting) -> str:
    kv = "" if s.kv_type_k == "f16" else f" {s.kv_type_k}"
    return f"{s.threads} thr, fa {'on' if s.flash_attn else 'off'}{kv}"


def _model_file(spec: ModelSpec, path: Path) -> str:
    if spec.shards:
        return spec.shards[0]
    write_model(spec, path)
    return str(path)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m calibrate tuning", description=__doc__)
    parser.add_argument("models", nargs="*", default=list(STANDARD_MODELS), help="files or names")
    parser.add_argument("--depth", type=int, nargs="+", default=list(STANDARD_DEPTHS))
    parser.add_argument("--seconds", type=float, default=540.0, help="of runs  [540]")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--profile", help="by default this machine's")
    parser.add_argument("--out", type=Path, help="file for the JSON document with every sample")
    parser.add_argument("--published", type=Path, help="a CSV of published rates to replay")
    parser.add_argument("--format", choices=("table", "markdown", "csv"), default="markdown")
    return parser.parse_args(argv)
