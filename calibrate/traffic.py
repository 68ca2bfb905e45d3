"""Bytes by rule beside bytes counted in llama.cpp's own graph.

    python -m calibrate traffic [--saved FOLDER] [MODEL.gguf …]

Without models: small models that llama.cpp saved, beside what another tool counted in their
graphs, and after them the graphs that were counted here; both are in ``tests/data``. With
models: each is run through the engine for one step and counted now. Every line is the
setting with the largest difference. Ends with 1 if a figure is outside its mark: weights
0.3 %, rows exact, cache and state 1 %.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpubound.model.gguf import read_gguf
from cpubound.model.quant import quant_type
from cpubound.model.traffic import compute_traffic
from cpubound.model.values import ModelSpec, ModelTraffic, Tensor
from cpubound.report.tables import Table, render_table
from cpubound.setting import Setting
from cpubound.units import format_percent

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
SAVED = DATA / "architectures"
GRAPHS = DATA / "graphs.jsonl.xz"
WEIGHTS_MARK = 0.003
CACHE_MARK = 0.01
# Not 0: before its first token a recurrent state is cleared, once.
COUNTED_DEPTH = 300

# The other tool knows caches by name, and this graph renames its recurrent state before
# it is read (src/models/plamo2.cpp): the counts of GRAPHS, by buffer, have it.
NOTES = {"plamo2-dense": "the count misses the recurrent state, which the graph renames"}


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What one step moved, as the graph has it."""

    depth_tokens: int
    flash_attn: bool
    weight_bytes: int
    row_bytes: int
    cache_read_bytes: int
    cache_write_bytes: int


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Rule beside graph at one setting; differences are relative to the graph."""

    name: str
    traffic: ModelTraffic
    counted: Counted

    @property
    def weights(self) -> float:
        return _relative(self.traffic.weights_read_bytes, self.counted.weight_bytes)

    @property
    def rows(self) -> float:
        return _relative(self.traffic.embedding_row_bytes, self.counted.row_bytes)

    @property
    def cache_read(self) -> float:
        return _relative(_cache_read(self.traffic), self.counted.cache_read_bytes)

    @property
    def cache_write(self) -> float:
        written = self.traffic.kv_write_bytes + self.traffic.state_write_bytes
        return _relative(written, self.counted.cache_write_bytes)

    @property
    def excess(self) -> float:
        """How far the worst figure is from its mark, in marks."""
        rows = 0.0 if self.rows == 0 else float("inf")
        cache = max(abs(self.cache_read), abs(self.cache_write))
        return max(abs(self.weights) / WEIGHTS_MARK, rows, cache / CACHE_MARK)


def _relative(rule: int, graph: int) -> float:
    if graph == 0:
        return 0.0 if rule == 0 else float("inf")
    return rule / graph - 1


def _cache_read(traffic: ModelTraffic) -> int:
    return traffic.kv_read_bytes + traffic.state_read_bytes


def compare(spec: ModelSpec, counts: Sequence[Counted]) -> Comparison:
    """Return the comparison at the setting where rule and graph differ most."""
    comparisons = [
        Comparison(
            name=spec.name,
            counted=counted,
            traffic=compute_traffic(
                spec,
                Setting(
                    depth_tokens=counted.depth_tokens,
                    allocated_context_tokens=counted.depth_tokens + 256,
                    flash_attn=counted.flash_attn,
                ),
            ),
        )
        for counted in counts
    ]
    return max(comparisons, key=lambda comparison: comparison.excess)


def saved_models(folder: Path) -> Iterator[Comparison]:
    """Compare models that llama.cpp saved; their headers are unpacked, not their zeros."""
    with lzma.open(folder / "traffic-truth.json.xz", "rt", encoding="utf-8") as file:
        truth = json.load(file)
    with tempfile.TemporaryDirectory() as temporary:
        with tarfile.open(folder / "tiny-architectures.tar.xz") as archive:
            for member in archive:
                content = archive.extractfile(member)
                if content is not None:
                    with (Path(temporary) / Path(member.name).name).open("wb") as file:
                        file.write(content.read(2**16))
                        file.truncate(member.size)
        for name, settings in sorted(truth.items()):
            counts = [
                Counted(
                    **_setting(key),
                    weight_bytes=counted["weight_bytes"],
                    row_bytes=counted["row_bytes"],
                    cache_read_bytes=counted["cache_read_bytes"],
                    cache_write_bytes=counted["cache_write_bytes"],
                )
                for key, counted in settings.items()
            ]
            yield compare(read_gguf(Path(temporary) / name), counts)


def kept_graphs(path: Path) -> Iterator[Comparison]:
    """Compare the graphs kept with the tests."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            graph = json.loads(line)
            counts = [
                Counted(
                    **_setting(key),
                    weight_bytes=weights,
                    row_bytes=rows,
                    cache_read_bytes=read,
                    cache_write_bytes=written,
                )
                for key, (weights, rows, read, written) in graph["graph"].items()
            ]
            yield compare(_spec(graph), counts)


def kept_specs(path: Path) -> Iterator[ModelSpec]:
    """Yield the models whose graphs are kept with the tests."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield _spec(json.loads(line))


def counted_now(paths: Sequence[str]) -> Iterator[Comparison]:
    """Compare models by running one step of each through the engine."""
    from cpubound.engine import LlamaCppRunner
    from cpubound.engine.values import RunSettings

    with LlamaCppRunner() as runner:
        for path in paths:
            counts = []
            for flash_attn in (False, True):
                settings = RunSettings(
                    model_path=path,
                    setting=Setting(
                        threads=1,
                        depth_tokens=COUNTED_DEPTH,
                        allocated_context_tokens=COUNTED_DEPTH + 256,
                        flash_attn=flash_attn,
                    ),
                    tokens=1,
                )
                counted = runner.count_graph(settings)
                counts.append(
                    Counted(
                        depth_tokens=COUNTED_DEPTH,
                        flash_attn=flash_attn,
                        weight_bytes=counted.weight_bytes,
                        row_bytes=counted.row_bytes,
                        cache_read_bytes=counted.cache_read_bytes,
                        cache_write_bytes=counted.cache_write_bytes,
                    )
                )
            runner.close_model(path)
            yield compare(read_gguf(path), counts)


def _setting(key: str) -> dict[str, Any]:
    depth, flash_attn = (int(part.split("=")[1]) for part in key.split(","))
    return {"depth_tokens": depth, "flash_attn": bool(flash_attn)}


def _spec(graph: Mapping[str, Any]) -> ModelSpec:
    return ModelSpec(
        name=f"{graph['name']}, keys of {graph['written_by']}",
        architecture=graph["architecture"],
        hyper_parameters={
            key: tuple(value) if isinstance(value, list) else value
            for key, value in graph["hyper_parameters"].items()
        },
        tensors=tuple(
            Tensor(name=name, type=quant_type(type_), shape=tuple(shape))
            for name, type_, shape in graph["tensors"]
        ),
    )


def table(comparisons: Sequence[Comparison]) -> Table:
    """Return rule, graph and difference for each model."""
    return Table(
        columns=(
            "architecture", "depth", "fa", "weights, rule", "graph", "difference", "rows",
            "cache read, rule", "graph", "difference", "written", "",
        ),
        rows=tuple(_row(comparison) for comparison in comparisons),
        right=frozenset(
            {"depth", "weights, rule", "graph", "difference", "cache read, rule", "written"}
        ),
    )  # fmt: skip


def _row(comparison: Comparison) -> tuple[str, ...]:
    counted = comparison.counted
    verdict = "" if comparison.excess <= 1 else NOTES.get(comparison.name, "OUTSIDE")
    return (
        comparison.name,
        str(counted.depth_tokens),
        "on" if counted.flash_attn else "off",
        f"{comparison.traffic.weights_read_bytes:,}",
        f"{counted.weight_bytes:,}",
        _percent(comparison.weights),
        "exact" if comparison.rows == 0 else _percent(comparison.rows),
        f"{_cache_read(comparison.traffic):,}",
        f"{counted.cache_read_bytes:,}",
        _percent(comparison.cache_read),
        _percent(comparison.cache_write),
        verdict,
    )


def _percent(difference: float) -> str:
    return "exact" if difference == 0 else format_percent(difference, 3)


def main(argv: Sequence[str]) -> int:
    """Print the table; return 1 if a figure is outside its mark and nothing explains it."""
    parser = argparse.ArgumentParser(prog="python -m calibrate traffic", description=__doc__)
    parser.add_argument("models", nargs="*", help="GGUF files to run and count")
    parser.add_argument(
        "--saved", type=Path, default=SAVED, help="folder of saved models and their counts"
    )
    options = parser.parse_args(argv)
    if options.models:
        comparisons = list(counted_now(options.models))
    else:
        comparisons = list(saved_models(options.saved))
    print(render_table(table(comparisons), "markdown"))
    print()
    outside = [c for c in comparisons if c.excess > 1 and c.name not in NOTES]
    within = sum(comparison.excess <= 1 for comparison in comparisons)
    if not options.models:
        kept = list(kept_graphs(GRAPHS))
        outside += [c for c in kept if c.excess > 1]
        architectures = len({c.traffic.architecture for c in kept})
        print(
            f"kept graphs: {sum(c.excess <= 1 for c in kept)} of {len(kept)} models of "
            f"{architectures} architectures within the marks"
        )
    print(f"these: {within} of {len(comparisons)} models within the marks")
    for comparison in outside:
        print(f"outside: {comparison.name}", file=sys.stderr)
    return 1 if outside else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
