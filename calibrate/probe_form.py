"""How a probe's shape, size and company decide its speed: what probes must be like.

Models of one type by row length and size, decoded alone and in turn with a large one, at each
thread count, in random order: bytes *read* per second (the file without its token table). In
turn no cache holds anything of a model when its next token comes, as in one many times
larger; the difference is what the last-level cache keeps of small models. Beside it the parts
of a token as ``breakdown`` measures them.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cpubound import stats
from cpubound.engine.inprocess import LlamaCppRunner, open_runner
from cpubound.engine.synth import write_model
from cpubound.engine.values import RunSettings
from cpubound.measuring.plan import ProbeShape, probe_layers
from cpubound.measuring.probes import ALONE, Probe, llama_spec, probe_traffic
from cpubound.report.tables import Table, render_table
from cpubound.setting import Setting
from cpubound.temporary import model_folder
from cpubound.units import GB

# Width, FFN size, heads, KV heads of 64: narrow to wide.
WIDTHS = {1280: (3328, 20, 5), 2048: (5632, 32, 8), 3328: (8448, 52, 13)}
RUN_SECONDS, MIN_TOKENS, MAX_TOKENS = 0.15, 4, 40
TURN_PASSES = 4
N_CTX = 256


@dataclass(kw_only=True)
class Row:
    """One model with what was seen of it: seconds by (threads, mode)."""

    probe: Probe
    path: str
    width: int
    layers: int
    seconds: dict[tuple[int, str], list[float]] = field(default_factory=dict)

    @property
    def read_bytes(self) -> int:
        """Bytes of weights that a token reads."""
        return probe_traffic(self.probe, ALONE, 0).weights_read_bytes


def main(argv: Sequence[str]) -> int:
    """Print a row for each type, width and size."""
    options = _parse(argv)
    for type_name in options.types.split(","):
        with open_runner() as runner, model_folder() as folder:
            rows = _write(type_name, options.sizes, folder, runner)
            order = random.Random(options.seed)
            for _ in range(options.rounds):
                _round(rows, options.threads, runner, order)
            parts = {row.path: _parts(row, options.threads, runner) for row in rows}
        print(render_table(form_table(rows, parts, options.threads), "markdown"), flush=True)
        print()
    return 0


def form_table(
    rows: Sequence[Row], parts: dict[str, dict[int, str]], threads: Sequence[int]
) -> Table:
    """Return GB/s alone and in turn at each thread count, and the parts of a token."""
    columns = ["type", "width", "layers", "read, MB"]
    for count in threads:
        columns += [f"{count} alone", f"{count} in turn", f"{count}: ffn / projections, GB/s"]
    body = []
    for row in rows:
        cells = [
            row.probe.type,
            str(row.width),
            str(row.layers),
            f"{row.read_bytes / 1e6:.0f}",
        ]
        for count in threads:
            for mode in ("alone", "turn"):
                seen = row.seconds.get((count, mode))
                cells.append(f"{row.read_bytes / stats.median(seen) / GB:.1f}" if seen else "–")
            cells.append(parts[row.path].get(count, "–"))
        body.append(tuple(cells))
    return Table(columns=tuple(columns), rows=tuple(body), right=frozenset(columns[1:]))


def _write(type_name: str, sizes: Sequence[int], folder: Path, runner: LlamaCppRunner) -> list[Row]:
    rows = []
    for width, (ffn, heads, kv_heads) in WIDTHS.items():
        shape = ProbeShape(
            name=f"form{width}",
            width=width,
            ffn=ffn,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=64,
            max_layers=500,
        )
        for size in sizes:
            layers = probe_layers(shape, type_name, size * 1_000_000)
            spec = llama_spec(f"{type_name}-{width}-{size}", shape, layers, type_name)
            path = folder / f"{spec.name}.gguf"
            write_model(spec, path, quantize=runner.quantize)
            probe = Probe(name=spec.name, type=type_name, spec=spec, cells=(ALONE,))
            rows.append(Row(probe=probe, path=str(path), width=width, layers=layers))
    return rows


def _round(
    rows: Sequence[Row], threads: Sequence[int], runner: LlamaCppRunner, order: random.Random
) -> None:
    largest = max(rows, key=lambda row: row.read_bytes)
    cells = [(row, count, mode) for row in rows for count in threads for mode in ("alone", "turn")]
    for row, count, mode in order.sample(cells, len(cells)):
        seen = row.seconds.setdefault((count, mode), [])
        if mode == "alone":
            guess = stats.median(seen) if seen else row.read_bytes / 20e9
            tokens = max(MIN_TOKENS, min(MAX_TOKENS, round(RUN_SECONDS / guess)))
            seen += runner.run(_settings(row, count, tokens)).samples_s
        elif row is not largest:
            both = [_settings(row, count, 1), _settings(largest, count, 1)]
            samples = runner.rotate(both, passes=TURN_PASSES, seed=order.randrange(2**31))
            seen += samples[0]


def _parts(row: Row, threads: Sequence[int], runner: LlamaCppRunner) -> dict[int, str]:
    """Return GB/s of the feed-forward and of the projections, as single products' times give."""
    reads: dict[str, int] = {}
    for read in probe_traffic(row.probe, ALONE, 0).products:
        reads[read.role] = reads.get(read.role, 0) + read.n_bytes
    found = {}
    for count in threads:
        seconds = runner.time_parts(_settings(row, count, 6), by_operator=True).seconds
        ffn, projections = (stats.median(seconds[p]) for p in ("ffn", "attention_projections"))
        found[count] = (
            f"{reads['ffn'] / ffn / GB:.1f} / {reads['attention'] / projections / GB:.1f}"
        )
    return found


def _settings(row: Row, threads: int, tokens: int) -> RunSettings:
    return RunSettings(
        model_path=row.path,
        setting=Setting(threads=threads, allocated_context_tokens=N_CTX),
        tokens=tokens,
    )


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m calibrate probe_form", description=__doc__)
    parser.add_argument("--types", default="Q4_K,IQ4_XS,Q6_K,Q8_0")
    parser.add_argument("--sizes", type=int, nargs="+", default=[80, 160, 320, 640, 1280])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
