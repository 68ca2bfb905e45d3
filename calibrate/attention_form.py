"""How the time of attention grows with depth: by heads, KV heads, KV types and threads.

Models of next to no weights; KV bytes per second of what a depth adds to an empty cache. A
query head goes through a KV head's keys and values once, so the rate falls as query heads
share a KV head; it bends where the cells of a head leave a cache, sooner where many KV heads
lie side by side. How many cells are allocated decides where keys and values lie.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import product

from msgspec.structs import replace

from cpubound import stats
from cpubound.engine.inprocess import LlamaCppRunner, open_runner
from cpubound.engine.synth import write_model
from cpubound.engine.values import RunSettings
from cpubound.measuring.plan import AttentionShape
from cpubound.measuring.probes import llama_spec
from cpubound.model.traffic import compute_traffic
from cpubound.model.values import ModelSpec
from cpubound.report.tables import Table, render_table
from cpubound.setting import Setting
from cpubound.temporary import model_folder
from cpubound.units import GB

# Heads, KV heads, head size: small and large groups, few and many KV heads.
SHAPES = ((32, 8, 64), (14, 2, 64), (32, 16, 64), (32, 8, 128), (12, 2, 128), (12, 12, 128))
SETTINGS = (("f16", True), ("f16", False), ("q8_0", True))
LAYERS = 2
ROOM = 64  # tokens behind the deepest cache


def main(argv: Sequence[str]) -> int:
    """Print a row for each shape, KV type, flash-attention and thread count."""
    options = _parse(argv)
    contexts = options.contexts or [max(options.depths) + ROOM]
    rows = []
    for heads, kv_heads, head_dim in SHAPES:
        shape = AttentionShape(
            name=f"attention-{heads}-{kv_heads}-{head_dim}",
            width=256,
            ffn=256,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            layers=LAYERS,
            depths=(),
        )
        spec = llama_spec(shape.name, shape, LAYERS, "Q8_0")
        with open_runner() as runner, model_folder() as folder:
            path = folder / "model.gguf"
            write_model(spec, path, quantize=runner.quantize)
            for kv_type, flash_attn in SETTINGS:
                for threads, n_ctx in product(options.threads, contexts):
                    setting = Setting(
                        threads=threads,
                        allocated_context_tokens=n_ctx,
                        kv_type_k=kv_type,
                        kv_type_v=kv_type,
                        flash_attn=flash_attn,
                    )
                    rates = _rates(runner, spec, str(path), options, setting)
                    rows.append(
                        (
                            f"{heads}/{kv_heads} × {head_dim}",
                            kv_type,
                            "on" if flash_attn else "off",
                            str(threads),
                            str(n_ctx),
                            *(f"{rate:.1f}" for rate in rates),
                        )
                    )
    columns = ("heads", "KV", "fa", "threads", "cells", *(str(depth) for depth in options.depths))
    table = Table(columns=columns, rows=tuple(rows), right=frozenset(columns[3:]))
    print(render_table(table, "markdown"))
    return 0


def _rates(
    runner: LlamaCppRunner, spec: ModelSpec, path: str, options: argparse.Namespace, empty: Setting
) -> list[float]:
    """Return GB/s of the KV bytes that each depth adds to an empty cache."""

    def read_bytes(depth: int) -> int:
        return compute_traffic(spec, replace(empty, depth_tokens=depth)).attention_read_bytes

    def seconds(depth: int) -> float:
        setting = replace(empty, depth_tokens=depth)
        settings = RunSettings(model_path=path, setting=setting, tokens=options.tokens)
        return stats.median(
            [s for _ in range(options.rounds) for s in runner.run(settings).samples_s]
        )

    # From deep to shallow: a cache is cut, not filled again.
    times = {depth: seconds(depth) for depth in sorted((0, *options.depths), reverse=True)}
    return [
        (read_bytes(depth) - read_bytes(0)) / max(times[depth] - times[0], 1e-9) / GB
        for depth in options.depths
    ]


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m calibrate attention_form", description=__doc__)
    parser.add_argument(
        "--depths", type=int, nargs="+", default=[256, 1024, 2048, 4096, 8192, 16384, 32000]
    )
    parser.add_argument(
        "--contexts", type=int, nargs="+", help="cells to allocate (default: for the deepest)"
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--tokens", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=2)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
