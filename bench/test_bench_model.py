"""How fast a header is read and traffic worked out: a large vocabulary, a split mixture.

pytest bench --benchmark-only
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from cpubound.model.gguf import header as gguf_header
from cpubound.model.gguf import read_gguf
from cpubound.model.gguf.strings import skip_strings, skip_strings_in_python
from cpubound.model.stores import local_models
from cpubound.model.traffic import compute_traffic
from cpubound.setting import Setting

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))
from gguf_bytes import I32, STRING, U16, U32, GgufBytes, TensorInfo, array, pair

WALKS = {"built": skip_strings, "python": skip_strings_in_python}


@pytest.fixture(scope="module", params=[128_256, 262_144])
def vocabulary(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with that many tokens and twice as many merges."""
    tokens = [f"token-{number}" for number in range(request.param)]
    pairs = [
        pair("general.architecture", STRING, "llama"),
        array("tokenizer.ggml.tokens", STRING, tokens),
        array("tokenizer.ggml.merges", STRING, tokens + tokens),
    ]
    path = tmp_path_factory.mktemp("vocabulary") / f"{request.param}.gguf"
    path.write_bytes(GgufBytes(pairs=pairs).packed())
    return path


@pytest.mark.parametrize("walk", WALKS)
def test_a_header_with_a_large_vocabulary(
    walk: str, vocabulary: Path, benchmark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_header, "skip_strings", WALKS[walk])
    benchmark(read_gguf, vocabulary)


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,200 tensors of 12 experts each in 30 shards: 119 GB, of which only headers are written."""
    folder = tmp_path_factory.mktemp("mixture")
    shape, bytes_each = (7168, 2048, 12), 7168 * 2048 * 12 // 256 * 144
    for number in range(30):
        pairs = [
            pair("split.no", U16, number),
            pair("split.count", U16, 30),
            pair("split.tensors.count", I32, 1200),
            pair("general.architecture", STRING, "deepseek2"),
            pair("deepseek2.block_count", U32, 30),
            pair("deepseek2.expert_used_count", U32, 2),
        ]
        tensors = [
            TensorInfo(f"blk.{number}.ffn_{n}_exps.weight", shape, 12, n * bytes_each)
            for n in range(40)
        ]
        header = GgufBytes(pairs=pairs, tensors=tensors, data_bytes=0).packed()
        with (folder / f"m-{number + 1:05d}-of-00030.gguf").open("wb") as file:
            file.write(header)
            file.truncate(len(header) + 40 * bytes_each)
    return folder / "m-00007-of-00030.gguf"


def test_the_headers_of_a_split_mixture(mixture: Path, benchmark: Any) -> None:
    benchmark(read_gguf, mixture)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 models of 291 tensors and 32,000 tokens each: their headers and holes."""
    folder = tmp_path_factory.mktemp("folder")
    pairs = [
        pair("general.architecture", STRING, "llama"),
        pair("llama.block_count", U32, 32),
        pair("llama.attention.head_count", U32, 32),
        array("tokenizer.ggml.tokens", STRING, [f"token-{number}" for number in range(32_000)]),
    ]
    names = [f"blk.{n // 9}.attn_{'qkv'[n % 3]}_{n % 9}.weight" for n in range(291)]
    tensors = [TensorInfo(name, (256, 16), 1, n * 8192) for n, name in enumerate(names)]
    header = GgufBytes(pairs=pairs, tensors=tensors, data_bytes=0).packed()
    for number in range(200):
        with (folder / f"model-{number}.gguf").open("wb") as file:
            file.write(header)
            file.truncate(len(header) + 291 * 8192)
    return folder


def test_a_folder_of_200_models(folder: Path, benchmark: Any) -> None:
    def list_folder() -> int:
        found = [model for model in local_models([folder]) if model.path.parent == folder]
        return sum(
            compute_traffic(read_gguf(model.path), Setting(flash_attn=False)).total_bytes > 0
            for model in found
        )

    assert benchmark(list_folder) == 200


def test_the_traffic_of_a_mixture(mixture: Path, benchmark: Any) -> None:
    benchmark(compute_traffic, read_gguf(mixture))
