"""Synthetic files: read back by our reader and by the gguf package, decoded by llama.cpp."""

from __future__ import annotations

import dataclasses
import errno
import shutil
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from fakes import tiny_model, zero_blocks

from cpubound.engine import LlamaCppRunner, find_runner
from cpubound.engine.gguf_writer import header_bytes, tensor_offsets
from cpubound.engine.synth import write_model
from cpubound.engine.values import RunSettings
from cpubound.errors import MachineError, ModelFileError
from cpubound.model.gguf import read_gguf
from cpubound.model.quant import quant_type
from cpubound.model.values import Tensor
from cpubound.setting import Setting

gguf = pytest.importorskip("gguf")


def read_back(path: Path) -> dict[str, np.ndarray]:
    return {tensor.name: tensor.data for tensor in gguf.GGUFReader(path).tensors}


def test_our_own_reader_gives_the_model_back(tmp_path: Path) -> None:
    spec = tiny_model("Q4_K_M")
    path = tmp_path / "x.gguf"
    write_model(spec, path, quantize=zero_blocks)
    again = read_gguf(path)
    assert again.tensors == spec.tensors
    assert again.vocabulary_size == spec.vocabulary_size
    assert again.architecture == spec.architecture
    assert again.file_type == spec.file_type
    read = dict(again.hyper_parameters)
    epsilon = read.pop("attention.layer_norm_rms_epsilon")
    assert epsilon == pytest.approx(1e-5)
    expected = dict(spec.hyper_parameters)
    expected.pop("attention.layer_norm_rms_epsilon")
    assert {key: read[key] for key in expected} == expected


def test_the_gguf_package_reads_names_shapes_and_types(tmp_path: Path) -> None:
    spec = tiny_model("Q4_K_M")
    path = tmp_path / "x.gguf"
    write_model(spec, path, quantize=zero_blocks)
    tensors = gguf.GGUFReader(path).tensors
    assert [(t.name, tuple(t.shape.tolist()), t.tensor_type.value) for t in tensors] == [
        (t.name, t.shape, t.type.id) for t in spec.tensors
    ]


@pytest.mark.parametrize("file_type", ["F32", "F16", "BF16"])
def test_weights_are_scattered_norms_are_one_and_all_is_finite(
    tmp_path: Path, file_type: str
) -> None:
    path = tmp_path / "x.gguf"
    write_model(tiny_model(file_type), path)
    tensors = read_back(path)
    assert np.all(tensors["blk.0.attn_norm.weight"] == 1)
    weights = tensors["blk.1.ffn_down.weight"]
    if file_type == "BF16":
        weights = (weights.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    weights = weights.astype(np.float32)
    assert np.isfinite(weights).all()
    assert weights.std() == pytest.approx(0.02, rel=0.05)


def test_rows_do_not_repeat_so_that_a_router_can_choose(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    write_model(tiny_model("F32"), path)
    rows = read_back(path)["blk.0.ffn_up.weight"]
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_the_seed_decides_what_is_written(tmp_path: Path) -> None:
    spec = tiny_model("F16")
    paths = [tmp_path / name for name in ("a", "b", "c")]
    for path, seed in zip(paths, (1, 1, 2), strict=True):
        write_model(spec, path, seed=seed)
    first, again, other = (path.read_bytes() for path in paths)
    assert first == again != other


def test_progress_ends_at_the_size_of_the_file(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    path = tmp_path / "x.gguf"
    write_model(tiny_model("F16"), path, progress=lambda *call: calls.append(call))
    size = path.stat().st_size
    assert calls[-1] == (size, size)
    assert [written for written, _ in calls] == sorted(written for written, _ in calls)


def test_no_space_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 10, 1000))
    with pytest.raises(MachineError, match=r"1\.00 kB are free; free"):
        write_model(tiny_model("F16"), tmp_path / "x.gguf")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="name a folder that exists"):
        write_model(tiny_model("F16"), tmp_path / "no" / "x.gguf")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError()])
def test_an_interrupted_file_is_removed_and_the_old_one_stays(tmp_path: Path, error) -> None:
    path = tmp_path / "x.gguf"
    path.write_text("the old one")

    def interrupt(written: int, total: int) -> None:
        raise error

    with pytest.raises(type(error)):
        write_model(tiny_model("F16"), path, progress=interrupt)
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.gguf"]
    assert path.read_text() == "the old one"


def test_a_disk_that_fills_up_is_an_error_with_advice(tmp_path: Path) -> None:
    def fill(written: int, total: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(MachineError, match="No space left on device; free some space"):
        write_model(tiny_model("F16"), tmp_path / "x.gguf", progress=fill)
    assert list(tmp_path.iterdir()) == []


def test_a_model_without_tensors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="names no tensors"):
        write_model(dataclasses.replace(tiny_model("F16"), tensors=()), tmp_path / "x.gguf")


def test_numbers_get_the_type_that_llama_cpp_expects(tmp_path: Path) -> None:
    tensor = Tensor(name="t", type=quant_type("F32"), shape=(3, 2))
    values = {
        "a.count": 3,
        "a.big": 1 << 40,
        "a.negative": -1,
        "a.rope.freq_base": 10000,
        "a.flag": True,
        "a.text": "größe",
        "a.counts": (1, 2, 0),
        "a.flags": (True, False),
        "a.parts": (0.5, 1),
    }
    path = tmp_path / "x.gguf"
    path.write_bytes(header_bytes(values, [tensor]) + bytes(tensor_offsets([tensor])[1]))
    fields = gguf.GGUFReader(path).fields
    types = {key: "/".join(kind.name for kind in fields[key].types) for key in values}
    assert types == {
        "a.count": "UINT32",
        "a.big": "UINT64",
        "a.negative": "INT32",
        "a.rope.freq_base": "FLOAT32",
        "a.flag": "BOOL",
        "a.text": "STRING",
        "a.counts": "ARRAY/UINT32",
        "a.flags": "ARRAY/BOOL",
        "a.parts": "ARRAY/FLOAT32",
    }
    assert fields["a.text"].contents() == "größe"
    assert fields["a.counts"].contents() == [1, 2, 0]


@pytest.fixture(scope="module")
def runner():
    with LlamaCppRunner() as engine:
        yield engine


@pytest.mark.engine
@pytest.mark.skipif(find_runner() is None, reason="llama-cpp-python is not installed")
class TestWithEngine:
    @pytest.mark.parametrize(
        "name",
        [
            *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
            *("IQ4_NL", "IQ4_XS", "MXFP4", "IQ2_XXS", "TQ1_0"),
        ],
    )
    def test_blocks_are_what_the_gguf_package_reads_as_random_weights(
        self, runner: LlamaCppRunner, name: str
    ) -> None:
        quant = quant_type(name)
        data = runner.quantize(quant, 64, scale=0.02, seed=3)
        assert len(data) == 64 * quant.block_bytes
        blocks = np.frombuffer(data, dtype=np.uint8)
        weights = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType(quant.id))
        assert np.isfinite(weights).all()
        assert weights.std() == pytest.approx(0.02, rel=0.35)
        assert runner.quantize(quant, 64, scale=0.02, seed=3) == data

    def test_scales_spread_as_a_trained_models_do(self, runner: LlamaCppRunner) -> None:
        data = runner.quantize(quant_type("Q4_0"), 8192, scale=0.02, seed=3)
        blocks = np.frombuffer(data, dtype=np.uint8).reshape(8192, 18)
        scales = blocks[:, :2].copy().view("<f2").ravel().astype(np.float32)
        # Of weights that are all of one deviation, 0.19.
        assert 0.24 < np.log(np.abs(scales)).std() < 0.34

    @pytest.mark.parametrize("file_type", ["F16", "Q4_0", "Q8_0", "Q4_K_M", "IQ4_XS"])
    def test_llama_cpp_loads_and_decodes_what_was_written(
        self, runner: LlamaCppRunner, tmp_path: Path, file_type: str
    ) -> None:
        path = tmp_path / "x.gguf"
        write_model(tiny_model(file_type), path, quantize=runner.quantize)
        seen = runner.run(
            RunSettings(
                model_path=str(path), setting=Setting(threads=1, flash_attn=False), tokens=3
            )
        )
        runner.close_model(str(path))
        assert len(seen.samples_s) == 3

    def test_a_writer_without_a_quantiser_starts_one_and_ends_it(self, tmp_path: Path) -> None:
        path = tmp_path / "x.gguf"
        write_model(tiny_model("Q8_0"), path)
        assert np.any(read_back(path)["blk.0.ffn_up.weight"])
