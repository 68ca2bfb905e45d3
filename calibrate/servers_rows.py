"""The servers of ``cloud-decode.csv.xz``, and their medians by CPU and thread count."""

from __future__ import annotations

import csv
import lzma
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cpubound import stats
from cpubound.api.kinship import kinship_of_name
from cpubound.cost.estimate import decode_step, prompt_step
from cpubound.cost.kin_table import KinCpu, KinModel, KinPoint, Kinship
from cpubound.model.catalog import catalog_model
from cpubound.model.quant import quant_type
from cpubound.model.traffic import compute_traffic, prompt_steps
from cpubound.model.values import ModelSpec
from cpubound.setting import Setting

# The files that were run, small to large, as the catalogue knows them.
MODELS = {
    "SmolLM-135M.Q4_K_M.gguf": "smollm2-135m",
    "qwen1_5-0_5b-chat-q4_k_m.gguf": "qwen1.5-0.5b",
    "gemma-2b.Q4_K_M.gguf": "gemma-2b",
    "llama-7b.Q4_K_M.gguf": "llama-2-7b",
    "phi-4-q4.gguf": "phi-4",
    "Llama-3.3-70B-Instruct-Q4_K_M.gguf": "llama-3.3-70b",
}
FILE_TYPE = "Q4_K_M"
# Decode runs of 128 tokens from an empty cache: half of them lie in it on average.
DECODED, MEAN_DEPTH = "128", 64
PROMPT_TOKENS = 512
# The 2B file is of February 2024: its output matrix is of Q4_K, not of Q6_K as today.
OLD_OUTPUT = ("gemma-2b", "token_embd.weight", "Q4_K")


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """One server: seconds of a token and of a prompt for each model, None where it was not run."""

    cpu: str
    threads: int
    read_bytes_per_s: float | None
    decode: tuple[float | None, ...]
    prompt: tuple[float | None, ...]


def read_servers(path: Path) -> list[Server]:
    """Read the CSV, compressed or not."""
    names = list(MODELS)
    found: dict[tuple[str, str], Server] = {}
    with (lzma.open if path.suffix == ".xz" else open)(path, "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = (row["vendor"], row["server"])
            none: tuple[None, ...] = (None,) * len(names)
            server = found.get(key) or Server(
                cpu=row["cpu"],
                threads=int(row["n_threads"]),
                read_bytes_per_s=float(row["read_MBs"]) * 1e6 if row["read_MBs"] else None,
                decode=none,
                prompt=none,
            )
            place, rate = names.index(row["model"]), float(row["avg_ts"])
            if row["n_gen"] == DECODED:
                server = replace(server, decode=_put(server.decode, place, 1 / rate))
            elif row["n_prompt"] == str(PROMPT_TOKENS):
                server = replace(server, prompt=_put(server.prompt, place, PROMPT_TOKENS / rate))
            found[key] = server
    return list(found.values())


def kin_models(architecture: str = "x86_64") -> dict[str, KinModel]:
    """Return what a step of each model amounts to."""
    return {name: _kin_model(name, architecture) for name in MODELS.values()}


def group_servers(servers: Sequence[Server]) -> list[KinCpu]:
    """Return the medians of the servers of each CPU at each thread count."""
    kinships = {name: kinship_of_name(name) for name in {s.cpu for s in servers}}
    cpus: dict[str, dict[int, list[Server]]] = {}
    by_name: dict[str, Kinship] = {}
    for server in servers:
        kinship = kinships[server.cpu]
        by_name[kinship.name] = kinship
        points = cpus.setdefault(kinship.name, {})
        points.setdefault(server.threads, []).append(server)
    return [
        KinCpu(
            kinship=by_name[name],
            scale={"decode": 1.0, "prompt": 1.0},
            points=tuple(_point(threads, mine) for threads, mine in sorted(points.items())),
        )
        for name, points in sorted(cpus.items())
    ]


def _put(values: tuple[float | None, ...], place: int, value: float) -> tuple[float | None, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _point(threads: int, servers: Sequence[Server]) -> KinPoint:
    read = [s.read_bytes_per_s for s in servers if s.read_bytes_per_s]
    return KinPoint(
        threads=threads,
        servers=len(servers),
        decode=_medians([s.decode for s in servers]),
        prompt=_medians([s.prompt for s in servers]),
        read_bytes_per_s=stats.median(read) if read else 0.0,
    )


def _medians(rows: Sequence[Sequence[float | None]]) -> tuple[float, ...]:
    """Return the geometric middle of each model's seconds, 0 where no server ran it."""
    found = []
    for column in zip(*rows, strict=True):
        seconds = [math.log(value) for value in column if value is not None]
        found.append(math.exp(stats.median(seconds)) if seconds else 0.0)
    return tuple(found)


def _kin_model(name: str, architecture: str) -> KinModel:
    spec = _as_run(name, catalog_model(name, FILE_TYPE))
    traffic = compute_traffic(spec, Setting(depth_tokens=MEAN_DEPTH))
    steps = prompt_steps(spec, PROMPT_TOKENS, Setting())
    decode = decode_step(traffic, 1, architecture)
    prompt = prompt_step(steps, 1)
    return KinModel(weight_bytes=decode.n_bytes, decode=decode.amounts, prompt=prompt.amounts)


def _as_run(name: str, spec: ModelSpec) -> ModelSpec:
    model, tensor, type_name = OLD_OUTPUT
    if name != model:
        return spec
    tensors = tuple(
        replace(t, type=quant_type(type_name)) if t.name == tensor else t for t in spec.tensors
    )
    return replace(spec, tensors=tensors)
