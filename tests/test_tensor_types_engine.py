"""Layouts and tensor types against llama.cpp itself: it loads, and quantises in a dry run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cpubound.errors import UsageError
from cpubound.model.catalog import catalog_entry
from cpubound.model.ftype import FILE_TYPES
from cpubound.model.layout import ModelShape

pytestmark = pytest.mark.engine
pytest.importorskip("llama_cpp")

QUANTISED = [known for known in FILE_TYPES if known.name not in ("F32", "F16", "BF16")]

# In a child: a failed assertion of llama.cpp ends the process.
CHILD = """
import ctypes, json, sys
import llama_cpp

path, ids = sys.argv[1], json.loads(sys.argv[2])
lines = []
keep = llama_cpp.llama_log_callback(lambda level, text, data: lines.append(text.decode()))
llama_cpp.llama_log_set(keep, ctypes.c_void_p(0))
llama_cpp.llama_backend_init()
model = llama_cpp.llama_model_load_from_file(
    path.encode(), llama_cpp.llama_model_default_params()
)
loaded = bool(model)
logs = {}
for id_ in ids:
    lines.clear()
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.dry_run, params.nthread = id_, True, 1
    status = llama_cpp.llama_model_quantize(path.encode(), b"unused", ctypes.byref(params))
    logs[id_] = "".join(lines) if status == 0 else None
print(json.dumps({"loaded": loaded, "logs": logs}))
"""

LINE = re.compile(
    r"\[ *\d+/ *\d+\] +(\S+) +- \[[^\]]*\], type = +(\w+), "
    r"size = +[\d.]+ MiB(?: -> +[\d.]+ MiB \((\w+)\))?"
)
WARNING = re.compile(r"warning: .*?-> falling back to +\w+\n", re.DOTALL)

NARROW: dict[str, Any] = {
    "block_count": 16,
    "context_length": 512,
    "embedding_length": 256,
    "feed_forward_length": 512,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.key_length": 64,
    "attention.value_length": 64,
    "rope.dimension_count": 64,
}
EXPERTS = {
    "expert_count": 8,
    "expert_used_count": 2,
    "expert_feed_forward_length": 256,
    "expert_shared_feed_forward_length": 256,
}
# A model of the catalogue, and what makes it small without changing its kind.
SMALL: dict[str, dict[str, Any]] = {
    "llama-3.2-1b": {},
    "gemma-3-1b": {"attention.sliding_window": 64},
    "phi-4-mini": {"embedding_length": 288, "attention.head_count": 3, "rope.dimension_count": 96},
    "mixtral-8x7b": {"expert_count": 8, "expert_used_count": 2},
    "qwen3-30b-a3b": EXPERTS,
    "gpt-oss-20b": {**EXPERTS, "embedding_length": 288},
    "qwen3-coder-next": {
        **EXPERTS,
        "ssm.group_count": 2,
        "ssm.time_step_rank": 4,
        "ssm.inner_size": 512,
    },
    "granite-4.0-h-micro": {
        "ssm.inner_size": 512,
        "ssm.time_step_rank": 8,
        "attention.head_count_kv": tuple(2 if i == 5 else 0 for i in range(16)),
    },
}


def small(name: str) -> ModelShape:
    shape = catalog_entry(name).shape
    keys = {**shape.hyper_parameters, **NARROW, **SMALL[name]}
    # Head sizes follow from the width for families that know no other.
    if shape.architecture in ("phi3", "gpt-oss"):
        head = int(keys["embedding_length"]) // int(keys["attention.head_count"])
        keys = {**keys, "attention.key_length": head, "attention.value_length": head}
    if shape.architecture == "gpt-oss":
        keys["rope.dimension_count"] = head
    return ModelShape(
        name=name,
        architecture=shape.architecture,
        hyper_parameters=keys,
        vocabulary_size=512,
        tied_output=shape.tied_output,
        features=shape.features,
    )


def types_at(shape: ModelShape, file_type_name: str) -> dict[str, str] | None:
    try:
        return {tensor.name: tensor.type.name for tensor in shape.at(file_type_name).tensors}
    except UsageError:
        return None


@pytest.mark.parametrize("name", SMALL)
def test_llama_cpp_loads_the_layout_and_chooses_the_same_types(name: str, tmp_path: Path) -> None:
    from cpubound.engine.synth import write_model

    shape = small(name)
    path = tmp_path / "model.gguf"
    write_model(shape.at("F16"), path)
    ids = json.dumps([known.id for known in QUANTISED])
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(path), ids],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    answer = json.loads(child.stdout)
    assert answer["loaded"]
    for known in QUANTISED:
        log = answer["logs"][str(known.id)]
        ours = types_at(shape, known.name)
        if log is None or ours is None:
            assert log is None and ours is None, known.name
            continue
        theirs = {m[1]: (m[3] or m[2]).upper() for m in LINE.finditer(WARNING.sub("", log))}
        assert theirs == ours, known.name
