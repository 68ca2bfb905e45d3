"""``python -m calibrate``: the standard set, or one experiment by name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module

EXPERIMENTS = {
    "crosscheck": "kernels beside STREAM, likwid-bench and llama.cpp",
    "traffic": "bytes by rule beside bytes in llama.cpp's graph",
    "file_types": "tensor types by rule beside llama.cpp's quantiser",
    "accuracy": "the held-out error of predictions",
    "pooled": "the errors of several runs of accuracy together, beside simpler rules",
    "probe_form": "how a probe's shape, size and company decide its speed",
    "attention_form": "how the time of attention grows with depth, by heads and KV heads",
    "ablation": "what each term of the model buys, on what accuracy observed",
    "interval": "the form errors of the 90 % interval, from the interval set",
    "transfer": "the ratios of llama.cpp to our own kernels: the constants of basis kernel",
    "tuning": "what tune chooses beside the best of a full grid",
    "agreement": "our decode rate beside llama-bench's, pair by pair",
    "servers": "cloud servers estimated from others, whole CPUs left out",
    "published": "published rates of machines we never had, replayed with rows held out",
    "pictures": "the pictures of the documentation, from a kept run",
    "speed": "times and memory of whole commands",
}
STANDARD_SET = ("crosscheck", "accuracy", "speed")


def main(argv: Sequence[str]) -> int:
    """Run one experiment, or the standard set without a name; return the exit code."""
    if argv and argv[0] in ("-h", "--help"):
        print("usage: python -m calibrate [EXPERIMENT [OPTIONS]]\n")
        for name, text in EXPERIMENTS.items():
            print(f"  {name:<12} {text}")
        print(f"\nWithout a name: {', '.join(STANDARD_SET)}.")
        return 0
    if not argv:
        return max(_experiment(name)([]) for name in STANDARD_SET)
    if argv[0] not in EXPERIMENTS:
        print(f"no experiment {argv[0]!r}: one of {', '.join(EXPERIMENTS)}", file=sys.stderr)
        return 2
    return _experiment(argv[0])(argv[1:])


def _experiment(name: str) -> Callable[[Sequence[str]], int]:
    run: Callable[[Sequence[str]], int] = import_module(f"calibrate.{name}").main
    return run


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
