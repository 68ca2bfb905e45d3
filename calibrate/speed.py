"""Whole-process times of the commands people type first: best and median of several runs."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from cpubound import stats
from cpubound.profile.file import default_profile_path


def main(argv: Sequence[str]) -> int:
    """Time the commands and print a row each."""
    parser = argparse.ArgumentParser(prog="python -m calibrate speed", description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--model", help="a GGUF with a large vocabulary")
    options = parser.parse_args(argv)
    commands: list[list[str]] = [["--version"], ["predict", "llama-3.1-8b"]]
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or _large_vocabulary(Path(folder))
        commands += [["inspect", model], ["predict", model]]
        if not default_profile_path().exists():
            commands = [c for c in commands if c[0] != "predict"]
            print("no profile yet: predict is left out", file=sys.stderr)
        print("| command | best | median |\n|---|---|---|")
        for command in commands:
            times = [_time(command) for _ in range(options.runs + 1)][1:]
            name = " ".join(Path(part).name for part in command)
            print(f"| cpubound {name} | {min(times):.3f} s | {stats.median(times):.3f} s |")
    return 0


def _time(command: Sequence[str]) -> float:
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "cpubound", *command], stdout=subprocess.DEVNULL, check=True
    )
    return time.perf_counter() - started


def _large_vocabulary(folder: Path) -> str:
    """Write a small model whose header holds a vocabulary of 128 k tokens."""
    import gguf
    import numpy as np

    path = folder / "vocabulary-128k.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in (
        ("context_length", 4096), ("embedding_length", 256), ("block_count", 1),
        ("feed_forward_length", 512), ("attention.head_count", 4),
        ("attention.head_count_kv", 4),
    ):  # fmt: skip
        writer.add_uint32(f"llama.{key}", value)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"token-{n}" for n in range(128_256)])
    writer.add_token_types([1] * 128_256)
    writer.add_token_merges([f"a{n} b{n}" for n in range(280_000)])
    writer.add_tensor("token_embd.weight", np.zeros((128_256, 256), dtype=np.float16))
    writer.add_tensor("blk.0.attn_q.weight", np.zeros((256, 256), dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
