"""Tensors and their types by rule beside llama.cpp's own loader and quantiser.

    python -m calibrate file_types [--variations N] [--seed N]

Every model of the catalogue, every architecture of the graphs kept with the tests, and N
random variations of these (layers, widths, heads, experts), each at every file type. A file
holds a header and nothing else: its tensors are a hole. Models of the catalogue are loaded
too, without memory for their tensors: each tensor must be there, in its shape, and no other.
Ends with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from calibrate.traffic import GRAPHS, kept_specs
from cpubound.engine.gguf_writer import header_bytes, tensor_offsets
from cpubound.engine.processes import python_command, python_environment
from cpubound.engine.synth import file_metadata
from cpubound.errors import UsageError
from cpubound.model.catalog import catalog_entry, catalog_names
from cpubound.model.ftype import FILE_TYPES
from cpubound.model.retype import retype
from cpubound.model.values import HyperParameter, ModelSpec, Tensor

QUANTISED = [known for known in FILE_TYPES if known.name not in ("F32", "F16", "BF16")]

# In a child: a failed assertion of llama.cpp ends the process.
CHILD = """
import ctypes, json, sys
import llama_cpp

lines = []
keep = llama_cpp.llama_log_callback(lambda level, text, data: lines.append(text.decode()))
llama_cpp.llama_log_set(keep, ctypes.c_void_p(0))
llama_cpp.llama_backend_init()
for line in sys.stdin:
    request, logs = json.loads(line), {}
    for id_ in json.loads(sys.argv[1]):
        lines.clear()
        params = llama_cpp.llama_model_quantize_default_params()
        params.ftype, params.dry_run, params.nthread = id_, True, 1
        path = request["path"].encode()
        status = llama_cpp.llama_model_quantize(path, b"unused", ctypes.byref(params))
        logs[id_] = "".join(lines) if status == 0 else None
    parameters = None
    if request["load"]:
        params = llama_cpp.llama_model_default_params()
        params.no_alloc, params.load_mode, params.use_extra_bufts = True, 0, False
        model = llama_cpp.llama_model_load_from_file(path, params)
        parameters = llama_cpp.llama_model_n_params(model) if model else None
        llama_cpp.llama_model_free(model)
    print(json.dumps({"logs": logs, "parameters": parameters}), flush=True)
"""

LINE = re.compile(
    r"\[ *\d+/ *\d+\] +(\S+) +- \[[^\]]*\], type = +(\w+), "
    r"size = +[\d.]+ MiB(?: -> +[\d.]+ MiB \((\w+)\))?"
)
WARNING = re.compile(r"warning: .*?-> falling back to +\w+\n", re.DOTALL)

Types = dict[str, str]  # tensor name -> type


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What llama.cpp makes of a file."""

    types: dict[str, Types | None]  # by file type; None where the quantiser gives up
    parameters: int | None  # of the loaded model; None if it was not loaded


class Quantiser:
    """A child process that runs llama.cpp's quantiser without writing anything."""

    def __init__(self) -> None:
        ids = json.dumps([known.id for known in QUANTISED])
        self._child = subprocess.Popen(
            [*python_command(CHILD), ids],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=python_environment(GGML_NO_BACKTRACE="1"),
        )  # fmt: skip

    def ask(self, path: Path, *, load: bool = False) -> Answer | None:
        """Return what each file type would give a file's tensors; load the model if asked.

        None if the child ended over this file: another one is needed then.
        """
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.write(json.dumps({"path": str(path), "load": load}) + "\n")
        self._child.stdin.flush()
        answer = self._child.stdout.readline()
        if not answer.startswith("{"):
            return None
        found = json.loads(answer)
        types = {known.name: _types_in(found["logs"][str(known.id)]) for known in QUANTISED}
        return Answer(types=types, parameters=found["parameters"])

    def close(self) -> None:
        """End the child."""
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.close()
        self._child.wait()
        self._child.stdout.close()


def _types_in(log: str | None) -> Types | None:
    if log is None:
        return None
    return {m[1]: (m[3] or m[2]).upper() for m in LINE.finditer(WARNING.sub("", log))}


def write_hollow(spec: ModelSpec, path: Path) -> None:
    """Write a model's header, with a hole of the right size for its tensors."""
    header = header_bytes(file_metadata(spec), spec.tensors)
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + tensor_offsets(spec.tensors)[1])


def differences(spec: ModelSpec, theirs: dict[str, Types | None]) -> list[str]:
    """Return a line for each file type at which rule and quantiser differ."""
    found = []
    for name, types in theirs.items():
        try:
            ours = {t.name: t.type.name for t in retype(spec, name).tensors}
        except UsageError:
            ours = None
        if ours is None or types is None:
            if ours != types:
                found.append(f"{name}: {'rule' if ours is None else 'quantiser'} gives up")
            continue
        wrong = [t for t in ours if ours[t] != types.get(t)]
        if wrong:
            tensor = wrong[0]
            found.append(
                f"{name}: {len(wrong)} tensors, first {tensor}:"
                f" {ours[tensor]} by rule, {types.get(tensor)} by the quantiser"
            )
    return found


def sources() -> Iterator[ModelSpec]:
    """Yield the models that are tried as they are, as a converter would write them in F16."""
    for name in catalog_names():
        yield catalog_entry(name).at("F16")
    seen = set()
    for spec in kept_specs(GRAPHS):
        if spec.architecture not in seen:
            seen.add(spec.architecture)
            yield retype(spec, "F16")


def vary(spec: ModelSpec, random_: random.Random) -> ModelSpec:
    """Change what the choice of types depends on: layers, widths, heads, experts, the tie.

    Names, dimensions and keys are changed apart: the quantiser loads no model, so the
    result need not make sense.
    """
    blocks: dict[int, list[Tensor]] = {}
    outside = []
    for tensor in spec.tensors:
        match = re.match(r"blk\.(\d+)\.", tensor.name)
        if match:
            blocks.setdefault(int(match[1]), []).append(tensor)
        else:
            outside.append(tensor)
    layers = random_.choice((1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 24, 28, 32, 36, 48, 61, 68, 80))
    kinds = list(blocks.values()) or [[]]
    if random_.random() < 0.3:
        outside = [t for t in outside if t.name != "output.weight"]
    width = random_.choice((0, 0, 0, 32, 64, 80, 96, 128, 192, 288))
    tensors = [_narrowed(t, width, random_) for t in outside]
    for layer in range(layers):
        for tensor in kinds[layer % len(kinds)]:
            stem = tensor.name.split(".", 2)[2]
            renamed = replace(tensor, name=f"blk.{layer}.{stem}")
            tensors.append(_narrowed(renamed, width, random_))
    heads = random_.choice((1, 4, 8, 16, 32, 64))
    keys: dict[str, HyperParameter] = {
        **spec.hyper_parameters,
        "block_count": layers,
        "attention.head_count": heads,
        "attention.head_count_kv": random_.choice([n for n in (1, 2, 4, 8, 64) if n <= heads]),
    }
    for key, value in keys.items():
        if isinstance(value, tuple) and len(value) > 1:
            keys[key] = tuple(value[i % len(value)] for i in range(layers))
    if keys.get("expert_count"):
        keys["expert_count"] = random_.choice((1, 2, 4, 8, 8, 16, 64, 128, 256))
        keys["expert_used_count"] = 1
    return replace(spec, name=f"{spec.name}, varied", hyper_parameters=keys, tensors=tuple(tensors))


def _narrowed(tensor: Tensor, width: int, random_: random.Random) -> Tensor:
    if not width or len(tensor.shape) < 2 or random_.random() < 0.5:
        return tensor
    return replace(tensor, shape=(width, *tensor.shape[1:]))


def main(argv: Sequence[str]) -> int:
    """Print what differs and a summary; return 1 if anything does."""
    parser = argparse.ArgumentParser(prog="python -m calibrate file_types", description=__doc__)
    parser.add_argument("--variations", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    random_ = random.Random(options.seed)
    specs = list(sources())
    in_catalogue = set(catalog_names())
    varied = [vary(random_.choice(specs), random_) for _ in range(options.variations)]
    tried = chosen = refused = failed = 0
    quantiser = Quantiser()
    with tempfile.TemporaryDirectory() as folder:
        for number, spec in enumerate([*specs, *(retype(v, "F16") for v in varied)]):
            path = Path(folder) / f"{number}.gguf"
            write_hollow(spec, path)
            load = spec.name in in_catalogue
            answer = quantiser.ask(path, load=load)
            path.unlink()
            if answer is None:
                quantiser.close()
                quantiser = Quantiser()
            if answer is None or not any(answer.types.values()):
                refused += 1
                failed += load
                print(f"not read by llama.cpp: {spec.name} ({spec.architecture})")
                continue
            tried += 1
            chosen += sum(len(types) for types in answer.types.values() if types)
            lines = differences(spec, answer.types)
            parameters = sum(tensor.elements for tensor in spec.tensors)
            if load and answer.parameters != parameters:
                lines.append(f"{parameters} parameters by rule, loaded {answer.parameters}")
            failed += bool(lines)
            for line in lines:
                print(f"{spec.name} ({spec.architecture}) {line}")
    quantiser.close()
    print(
        f"{tried} models of {len({s.architecture for s in specs})} architectures at "
        f"{len(QUANTISED)} file types: {chosen:,} types chosen, {failed} models differ, "
        f"{refused} were not read"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
