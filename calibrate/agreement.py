"""Our observed decode rate beside llama-bench's, for the same file and setting.

    python -m calibrate agreement MODEL.gguf --bench PATH-TO-llama-bench --threads 1,2 --depth 0,512

Both run once in each pair, in random order; both rates are tokens over the seconds of the whole
run, as llama-bench counts. Printed is the median of the pairs' ratios with its range, and
whether it lies within the mark. Two builds of llama.cpp differ too: which were run is said.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from cpubound.engine import open_runner
from cpubound.engine.llama_bench import LlamaBenchRunner
from cpubound.engine.runner import Runner
from cpubound.engine.values import RunSettings
from cpubound.report.tables import Table, render_table
from cpubound.setting import Setting
from cpubound.stats import median
from cpubound.units import format_significant

MARK = (0.98, 1.02)


@dataclass(kw_only=True)
class Cell:
    """One setting with both rates, pair by pair."""

    settings: RunSettings
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        return [a / b for a, b in zip(self.ours, self.theirs, strict=True)]


def main(argv: Sequence[str]) -> int:
    """Run the pairs and print the table; 1 if a cell misses the mark."""
    options = _parse(argv)
    cells = [
        Cell(
            settings=RunSettings(
                model_path=options.model,
                setting=Setting(threads=threads, depth_tokens=depth, flash_attn=flash == "on"),
                tokens=options.tokens,
            )
        )
        for threads, depth, flash in itertools.product(
            options.threads, options.depth, options.flash_attn
        )
    ]
    with open_runner() as ours, LlamaBenchRunner(options.bench, repetitions=1) as theirs:
        print(f"ours: {_name(ours)}; theirs: {_name(theirs)}", flush=True)
        run_pairs(cells, ours, theirs, pairs=options.pairs, seed=options.seed)
    print(render_table(agreement_table(cells), options.format))
    return 0 if all(_agrees(cell) for cell in cells) else 1


def run_pairs(
    cells: Sequence[Cell], ours: Runner, theirs: Runner, *, pairs: int, seed: int
) -> None:
    """Run every cell on both engines, pair by pair, in random order."""
    order = random.Random(seed)
    for _ in range(pairs):
        for cell in order.sample(list(cells), len(cells)):
            for runner, rates in order.sample([(ours, cell.ours), (theirs, cell.theirs)], 2):
                # llama-bench is a new process in every run; so are we, for where the pages of
                # one load happen to lie decides about some per cent, and a process that loads
                # again gets the pages that it has just given back.
                runner.close()
                samples = runner.run(cell.settings).samples_s
                rates.append(len(samples) / sum(samples))


def agreement_table(cells: Sequence[Cell]) -> Table:
    """Return a row for each setting: both medians, and the ratios of the pairs."""
    return Table(
        columns=("threads", "depth", "flash-attn", "ours", "llama-bench", "ratio", "agrees"),
        rows=tuple(_row(cell) for cell in cells),
        right=frozenset({"threads", "depth", "ours", "llama-bench"}),
    )


def _row(cell: Cell) -> tuple[str, ...]:
    ratios = cell.ratios
    return (
        str(cell.settings.setting.threads),
        str(cell.settings.setting.depth_tokens),
        "on" if cell.settings.setting.flash_attn else "off",
        format_significant(median(cell.ours)),
        format_significant(median(cell.theirs)),
        f"{median(ratios):.3f} [{min(ratios):.2f}–{max(ratios):.2f}], {len(ratios)} pairs",
        "yes" if _agrees(cell) else "no",
    )


def _agrees(cell: Cell) -> bool:
    return MARK[0] <= median(cell.ratios) <= MARK[1]


def _name(runner: Runner) -> str:
    identity = runner.identity()
    return f"{identity.name} {identity.version} (build {identity.build[:12]})"


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    def counts(text: str) -> list[int]:
        return [int(part) for part in text.split(",")]

    parser = argparse.ArgumentParser(prog="python -m calibrate agreement", description=__doc__)
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("--bench", default="llama-bench", help="the binary  [on PATH]")
    parser.add_argument("--threads", type=counts, default=[1], metavar="N[,N…]")
    parser.add_argument("--depth", type=counts, default=[0], metavar="N[,N…]")
    parser.add_argument("--flash-attn", type=lambda text: text.split(","), default=["on"])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--format", choices=("table", "markdown", "csv"), default="table")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
