"""Reading GGUF: what the gguf package writes comes back; what is broken is refused by name."""

from __future__ import annotations

import os
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from gguf_bytes import (
    ARRAY,
    F32,
    F64,
    I32,
    STRING,
    U8,
    U16,
    U32,
    U64,
    GgufBytes,
    TensorInfo,
    array,
    pair,
    string,
)

from cpubound.errors import ModelFileError
from cpubound.model.gguf import header as gguf_header
from cpubound.model.gguf import read_gguf, shard_names
from cpubound.model.gguf.source import FileSource
from cpubound.model.gguf.strings import skip_strings, skip_strings_in_python

LLAMA = pair("general.architecture", STRING, "llama")


def write(folder: Path, content: bytes, name: str = "model.gguf") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        read_gguf(path)
    message = str(caught.value)
    assert "\n" not in message
    assert path.parent.name in message  # it says which file
    return message


@pytest.fixture(params=[skip_strings, skip_strings_in_python], ids=["built", "python"])
def each_skip(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_header, "skip_strings", request.param)


# -- what the gguf package writes ------------------------------------------------------


@pytest.fixture
def written(tmp_path: Path) -> Path:
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "written.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("llama.u8", 200)
    writer.add_int8("llama.i8", -100)
    writer.add_uint16("llama.u16", 60000)
    writer.add_int16("llama.i16", -30000)
    writer.add_uint32("llama.block_count", 2)
    writer.add_int32("llama.i32", -5)
    writer.add_float32("llama.rope.freq_base", 500000.0)
    writer.add_bool("llama.flag", True)
    writer.add_string("llama.rope.scaling.type", "yarn")
    writer.add_uint64("llama.u64", 2**40)
    writer.add_int64("llama.i64", -(2**40))
    writer.add_float64("llama.f64", 0.1)
    writer.add_array("llama.attention.head_count_kv", [8, 0])
    writer.add_array("llama.floats", [0.5, 1.5])
    writer.add_array("llama.labels", ["yes", "no"])
    writer.add_file_type(15)
    writer.add_token_list([f"token {number}" for number in range(1000)])
    writer.add_token_scores([0.0] * 1000)
    writer.add_chat_template("x" * 100_000)
    writer.add_tensor("token_embd.weight", np.zeros((1000, 64), dtype=np.float16))
    writer.add_tensor("output_norm.weight", np.zeros(64, dtype=np.float32))
    blocks = np.zeros((64, 64 // 32 * 34), dtype=np.uint8)
    writer.add_tensor("blk.0.attn_q.weight", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.usefixtures("each_skip")
def test_every_kind_of_value_that_the_gguf_package_writes_comes_back(written: Path) -> None:
    spec = read_gguf(written)
    hyper = dict(spec.hyper_parameters)
    assert spec.architecture == "llama"
    assert spec.name == "written"
    assert spec.vocabulary_size == 1000
    assert spec.file_type == 15
    assert spec.file_bytes == written.stat().st_size
    assert spec.shards == (str(written),)
    assert spec.warnings == ()
    assert hyper.pop("general.architecture") == "llama"
    assert hyper.pop("general.file_type") == 15
    assert hyper.pop("f64") == 0.1
    assert hyper == {
        "u8": 200,
        "i8": -100,
        "u16": 60000,
        "i16": -30000,
        "block_count": 2,
        "i32": -5,
        "rope.freq_base": 500000.0,
        "flag": True,
        "rope.scaling.type": "yarn",
        "u64": 2**40,
        "i64": -(2**40),
        "attention.head_count_kv": (8, 0),
        "floats": (0.5, 1.5),
    }


def test_tensors_have_the_names_shapes_types_and_bytes_that_were_written(written: Path) -> None:
    found = {
        tensor.name: (tensor.shape, tensor.type.name, tensor.n_bytes)
        for tensor in read_gguf(written).tensors
    }
    assert found == {
        "token_embd.weight": ((64, 1000), "F16", 64 * 1000 * 2),
        "output_norm.weight": ((64,), "F32", 256),
        "blk.0.attn_q.weight": ((64, 64), "Q8_0", 64 * 68),
    }


def test_offsets_agree_with_the_gguf_package(written: Path) -> None:
    gguf = pytest.importorskip("gguf")
    with written.open("rb") as file, FileSource(written) as source:
        header = gguf_header.parse_header(source)
        assert file.read(4) == b"GGUF"
    reader = gguf.GGUFReader(written)
    assert {t.name: header.data_offset + t.offset for t in header.tensors} == {
        t.name: t.data_offset for t in reader.tensors
    }
    reader.data._mmap.close()


def test_nested_arrays_are_stepped_over(tmp_path: Path) -> None:
    inner = b"\x04\0\0\0" + (2).to_bytes(8, "little") + bytes(8)
    nested = string("llama.nested") + bytes([ARRAY, 0, 0, 0, ARRAY, 0, 0, 0])
    nested += (3).to_bytes(8, "little") + 3 * inner
    content = GgufBytes(pairs=[LLAMA, nested, pair("llama.after", U32, 7)]).packed()
    hyper = read_gguf(write(tmp_path, content)).hyper_parameters
    assert "nested" not in hyper
    assert hyper["after"] == 7


def test_version_2_is_read_like_version_3(tmp_path: Path) -> None:
    assert read_gguf(write(tmp_path, GgufBytes(version=2).packed())).architecture == "llama"


def test_another_alignment_is_honoured(tmp_path: Path) -> None:
    pairs = [LLAMA, pair("general.alignment", U32, 64)]
    tensors = [TensorInfo(), TensorInfo(name="b", offset=512)]
    content = GgufBytes(pairs=pairs, tensors=tensors, alignment=64, data_bytes=1024).packed()
    assert len(read_gguf(write(tmp_path, content)).tensors) == 2


# -- strings ---------------------------------------------------------------------------


@pytest.mark.parametrize("skip", [skip_strings, skip_strings_in_python])
def test_strings_are_stepped_over_to_the_first_byte_after_them(skip: object) -> None:
    assert callable(skip)
    strings = b"".join(string(b"x" * length) for length in (0, 1, 7, 8, 255, 256, 70_000))
    assert skip(b"ab" + strings + b"cd", 2, 7) == (2 + len(strings), 0)
    assert skip(strings, 0, 0) == (0, 0)


@pytest.mark.parametrize("skip", [skip_strings, skip_strings_in_python])
def test_a_window_may_end_in_a_string_or_in_a_length(skip: object) -> None:
    assert callable(skip)
    strings = string(b"abc") + string(b"defg") + string(b"hi")
    for cut in range(len(strings)):
        position, left = skip(strings[:cut], 0, 3)
        begins = [at for at in (0, 11, 23) if at + 8 <= cut]
        assert left == 3 - len(begins)
        assert position == (0, 11, 23, 33)[len(begins)]


@pytest.mark.parametrize("skip", [skip_strings, skip_strings_in_python])
@pytest.mark.parametrize("length", [2**62, 2**63 - 1, 2**63, 2**64 - 1])
def test_a_length_beyond_all_files_is_told_apart(skip: object, length: int) -> None:
    assert callable(skip)
    position, _ = skip(string(b"ok") + length.to_bytes(8, "little") + bytes(8), 0, 5)
    assert position == -1


@pytest.mark.usefixtures("each_skip")
def test_a_vocabulary_longer_than_the_window_is_stepped_over_in_constant_memory(
    tmp_path: Path,
) -> None:
    tokens = [f"token {number}" for number in range(100_000)]
    pairs = [LLAMA, array("tokenizer.ggml.tokens", STRING, tokens), pair("llama.last", U8, 9)]
    path = write(tmp_path, GgufBytes(pairs=pairs).packed())
    del tokens, pairs
    tracemalloc.start()
    spec = read_gguf(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert spec.vocabulary_size == 100_000
    assert spec.hyper_parameters["last"] == 9
    assert peak < 3 * gguf_header.WINDOW_BYTES


# -- split files -----------------------------------------------------------------------


def split_model(folder: Path, count: int = 3, **changes: object) -> list[Path]:
    """Write a model in ``count`` shards as llama-gguf-split does, metadata in the first."""
    paths = []
    for number in range(count):
        pairs = [
            pair("split.no", U16, number),
            pair("split.count", U16, count),
            pair("split.tensors.count", I32, changes.get("tensors_count", count)),
        ]
        if number == 0:
            pairs += [LLAMA, pair("llama.block_count", U32, 1)]
        content = GgufBytes(pairs=pairs, tensors=[TensorInfo(name=f"t{number}")]).packed()
        paths.append(write(folder, content, f"big-{number + 1:05d}-of-{count:05d}.gguf"))
    return paths


def test_any_shard_stands_for_the_whole_model(tmp_path: Path) -> None:
    paths = split_model(tmp_path)
    specs = [read_gguf(path) for path in paths]
    assert specs[0] == specs[1] == specs[2]
    assert specs[0].name == "big"
    assert specs[0].shards == tuple(str(path) for path in paths)
    assert [(t.name, t.shard) for t in specs[0].tensors] == [("t0", 0), ("t1", 1), ("t2", 2)]
    assert specs[0].file_bytes == sum(path.stat().st_size for path in paths)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    paths = split_model(tmp_path)
    paths[1].unlink()
    assert "shard 2 of 3 is missing" in refusal(paths[0])
    assert paths[1].name in refusal(paths[2])


def test_a_shard_under_another_name_is_refused(tmp_path: Path) -> None:
    path = split_model(tmp_path)[0].rename(tmp_path / "model.gguf")
    assert "one of 3 shards" in refusal(path)


def test_shards_in_each_others_place_are_refused(tmp_path: Path) -> None:
    paths = split_model(tmp_path)
    shutil.copy(paths[2], paths[1])
    assert "not shard 2 of 3" in refusal(paths[0])


def test_shards_that_hold_too_few_tensors_are_refused(tmp_path: Path) -> None:
    assert "hold 3 tensors where 5" in refusal(split_model(tmp_path, tensors_count=5)[0])


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    paths = split_model(tmp_path, 2)
    content = paths[1].read_bytes().replace(string("t1"), string("t0"))
    paths[1].write_bytes(content)
    assert "'t0' stands in two shards" in refusal(paths[0])


def test_shards_joined_with_cat_are_recognised(tmp_path: Path) -> None:
    joined = b"".join(path.read_bytes() for path in split_model(tmp_path))
    folder = tmp_path / "joined"
    folder.mkdir()
    for name in ("model.gguf", "big-00001-of-00003.gguf"):
        assert "joined with cat" in refusal(write(folder, joined, name))


def test_shard_names_are_those_of_llama_cpp() -> None:
    assert shard_names("a/b-00002-of-00002.gguf", 2) == (
        "a/b-00001-of-00002.gguf",
        "a/b-00002-of-00002.gguf",
    )


# -- what is not a model ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"GG", "begins with b'GG'"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "web page"),
        (b"\n  <html lang=en>", "web page"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4920734272\n",
            "4920734272 bytes",
        ),
        (b"lmgg" + bytes(60), "before GGUF"),
        (b"PK\x03\x04" + bytes(60), "PyTorch"),
        ((200).to_bytes(8, "little") + b'{"__metadata__":{}}', "safetensors"),
        (b'{"model_type": "llama"}', "JSON"),
        (bytes(4096), "zeros"),
        (b"\x7fELF" + bytes(60), "not a GGUF file"),
        (b"GGUF", "ends inside its header"),
        (b"GGUF\x03\0\0\0", "ends inside its header"),
        (GgufBytes(version=1).packed(), "version 1"),
        (GgufBytes(version=0).packed(), "version 0"),
        (GgufBytes(version=4).packed(), "version 4 is newer"),
        (GgufBytes(version=3 << 24).packed(), "big-endian"),
        (GgufBytes(pairs=[]).packed(), "names no architecture"),
        (GgufBytes(pairs=[LLAMA, pair("general.type", STRING, "mmproj")]).packed(), "projector"),
        (GgufBytes(pairs=[pair("general.architecture", STRING, "clip")]).packed(), "projector"),
        (GgufBytes(pairs=[LLAMA, pair("general.type", STRING, "adapter")]).packed(), "LoRA"),
        (GgufBytes(pairs=[LLAMA, pair("adapter.type", STRING, "lora")]).packed(), "LoRA"),
        (GgufBytes(pairs=[pair("general.type", STRING, "imatrix")]).packed(), "imatrix"),
        (
            GgufBytes(pairs=[pair("general.architecture", STRING, "controlvector")]).packed(),
            "control vector",
        ),
        (GgufBytes(tensors=[], data_bytes=0).packed(), "vocabulary but no tensors"),
    ],
)
def test_what_is_not_a_model_is_called_by_its_name(
    tmp_path: Path, content: bytes, words: str
) -> None:
    assert words in refusal(write(tmp_path, content))


def test_a_missing_file_a_folder_and_an_unreadable_one_are_told_apart(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "missing.gguf")
    folder = tmp_path / "folder.gguf"
    folder.mkdir()
    assert "this is a folder" in refusal(folder)
    assert "cannot be opened" in refusal(tmp_path / "null\0byte.gguf")
    assert "cannot be opened" in refusal(tmp_path / ("long" * 100))
    closed = write(tmp_path, GgufBytes().packed(), "closed.gguf")
    closed.chmod(0)
    if not os.access(closed, os.R_OK):
        assert "cannot be opened" in refusal(closed)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes on this system")
def test_a_pipe_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    assert "device or a pipe" in refusal(tmp_path / "pipe.gguf")


# -- broken headers --------------------------------------------------------------------

U64_MAX = 2**64 - 1


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (GgufBytes(n_pairs=2**63), "metadata entries are claimed"),
        (GgufBytes(n_pairs=-1), "metadata entries are claimed"),
        (GgufBytes(n_pairs=1000), "metadata entries are claimed"),
        (GgufBytes(n_tensors=2**63), "tensors are claimed"),
        (GgufBytes(n_tensors=-1), "tensors are claimed"),
        (GgufBytes(n_tensors=500), "tensors are claimed"),
        (GgufBytes(pairs=[LLAMA, LLAMA]), "'general.architecture' stands twice"),
        (GgufBytes(pairs=[LLAMA, pair("", U8, 1)]), "key is empty"),
        (GgufBytes(pairs=[LLAMA, U64_MAX.to_bytes(8, "little") + bytes(64)]), "key of"),
        (GgufBytes(pairs=[LLAMA, string("k") + bytes([13, 0, 0, 0, 0])]), "value type 13"),
        (GgufBytes(pairs=[LLAMA, string("k") + bytes([9, 0, 0, 0, 99, 0, 0, 0] + [0] * 8)]), "99"),
        (GgufBytes(pairs=[LLAMA, array("k", U32, [], 2**62)]), "are left"),
        (GgufBytes(pairs=[LLAMA, array("k", F64, [], U64_MAX)]), "are left"),
        (GgufBytes(pairs=[LLAMA, array("k", STRING, [], U64_MAX)]), "claims"),
        (GgufBytes(pairs=[LLAMA, string("k") + b"\x08\0\0\0" + b"\xff" * 8]), "are left"),
        (GgufBytes(pairs=[LLAMA, pair("general.alignment", U32, 0)]), "alignment 0"),
        (GgufBytes(pairs=[LLAMA, pair("general.alignment", U32, 48)]), "alignment 48"),
        (GgufBytes(pairs=[LLAMA, pair("general.alignment", F32, 32.0)]), "alignment 32.0"),
        (GgufBytes(pairs=[LLAMA, pair("split.count", U64, 2**40)]), "shards"),
        (GgufBytes(tensors=[TensorInfo(), TensorInfo(offset=512)]), "stands twice"),
        (GgufBytes(tensors=[TensorInfo(name="n" * 64)]), "tensor name of 64 bytes"),
        (GgufBytes(tensors=[TensorInfo(shape=())]), "0 dimensions"),
        (GgufBytes(tensors=[TensorInfo(shape=(1, 1, 1, 1, 1))]), "5 dimensions"),
        (GgufBytes(tensors=[TensorInfo(n_dimensions=2**32 - 1)]), "4294967295 dimensions"),
        (GgufBytes(tensors=[TensorInfo(shape=(32, 0))]), "dimension of zero"),
        (GgufBytes(tensors=[TensorInfo(shape=(2**63, 1))]), "impossible shape"),
        (GgufBytes(tensors=[TensorInfo(shape=(-1,))]), "impossible shape"),
        (GgufBytes(tensors=[TensorInfo(shape=(2**32, 2**32))]), "impossible shape"),
        (GgufBytes(tensors=[TensorInfo(shape=(33, 4), type_=8)]), "not a multiple of the 32"),
        (GgufBytes(tensors=[TensorInfo(offset=16)]), "not a multiple of 32"),
        (GgufBytes(tensors=[TensorInfo(offset=2**40)]), "cut short"),
        (GgufBytes(tensors=[TensorInfo(), TensorInfo(name="b", offset=32)]), "overlap"),
    ],
)
def test_a_broken_header_is_refused_saying_what_and_where(
    tmp_path: Path, file: GgufBytes, words: str
) -> None:
    message = refusal(write(tmp_path, file.packed()))
    assert words in message


@pytest.mark.usefixtures("each_skip")
@pytest.mark.parametrize("length", [10_000, 2**40, 2**63, U64_MAX])
def test_a_string_in_an_array_longer_than_the_file_is_refused(tmp_path: Path, length: int) -> None:
    values = string("fine") + length.to_bytes(8, "little") + bytes(64)
    key = string("tokenizer.ggml.tokens") + bytes([9, 0, 0, 0, 8, 0, 0, 0])
    content = GgufBytes(pairs=[LLAMA, key + (3).to_bytes(8, "little") + values]).packed()
    assert "longer than the file" in refusal(write(tmp_path, content))


def test_a_header_cut_anywhere_is_refused(tmp_path: Path) -> None:
    pairs = [LLAMA, array("tokenizer.ggml.tokens", STRING, ["a", "bc"]), pair("llama.x", F32, 1.0)]
    header = GgufBytes(pairs=pairs).header()
    for cut in range(4, len(header)):
        refusal(write(tmp_path, header[:cut]))


def test_cut_data_are_told_to_the_byte(tmp_path: Path) -> None:
    content = GgufBytes().packed()
    assert "cut short by 100 of" in refusal(write(tmp_path, content[:-100]))


def test_the_padding_after_the_last_tensor_may_be_missing(tmp_path: Path) -> None:
    tensors = [TensorInfo(name="a", shape=(3,))]
    content = GgufBytes(tensors=tensors, data_bytes=12).packed()
    assert read_gguf(write(tmp_path, content)).warnings == ()


def test_bytes_after_the_last_tensor_are_a_warning(tmp_path: Path) -> None:
    spec = read_gguf(write(tmp_path, GgufBytes().packed() + bytes(100)))
    assert spec.warnings == ("100 bytes follow the last tensor",)


@pytest.mark.parametrize("id_", [4, 33, 43, 2**31 + 5])
def test_an_unknown_tensor_type_is_a_warning_that_names_the_id(tmp_path: Path, id_: int) -> None:
    tensors = [TensorInfo(), TensorInfo(name="odd", type_=id_, offset=512)]
    spec = read_gguf(write(tmp_path, GgufBytes(tensors=tensors, data_bytes=4096).packed()))
    assert str(id_) in spec.warnings[0]
    assert sum(tensor.n_bytes for tensor in spec.tensors) == 512


def test_names_from_a_file_cannot_break_the_line(tmp_path: Path) -> None:
    tensors = [TensorInfo(name="a\nb\x1b[31m", shape=(0,))]
    message = refusal(write(tmp_path, GgufBytes(tensors=tensors).packed()))
    assert "\x1b" not in message


def test_what_a_file_keeps_in_memory_is_bounded(tmp_path: Path) -> None:
    head = bytes([ARRAY, 0, 0, 0, U8, 0, 0, 0]) + (4096).to_bytes(8, "little")
    pairs = [LLAMA] + [string(f"llama.{number}") + head + bytes(4096) for number in range(2000)]
    path = write(tmp_path, GgufBytes(pairs=pairs).packed())
    del pairs
    tracemalloc.start()
    read_gguf(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 * 2**20
