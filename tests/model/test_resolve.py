"""MODEL arguments: what each form means, and what is said about those that mean nothing."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from cpubound.errors import CpuboundError, InputError, ModelFileError, UsageError
from cpubound.model.ftype import COMMON_FILE_TYPES, parse_file_types
from cpubound.model.resolve import file_types_for, resolve_model, resolve_models

gguf = pytest.importorskip("gguf")

CONFIG = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}


@pytest.fixture(scope="module")
def gguf_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    import numpy as np

    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_embedding_length(32)
    writer.add_context_length(64)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_vocab_size(8)
    writer.add_tensor("token_embd.weight", np.zeros((8, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


@pytest.fixture
def model_file(tmp_path: Path, gguf_bytes: bytes) -> Path:
    path = tmp_path / "models" / "tiny-q4.gguf"
    path.parent.mkdir()
    path.write_bytes(gguf_bytes)
    return path


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny-llama" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(CONFIG), encoding="utf-8")
    return path


def test_a_catalogue_name_takes_its_file_type_after_a_colon_or_apart() -> None:
    after_colon = resolve_model("llama-3.2-1b:Q8_0")
    assert after_colon == resolve_model("llama-3.2-1b", "q8_0")
    assert after_colon.file_type == 7
    assert resolve_model("Llama-3.2-1B").file_type == 15
    assert resolve_model("gpt-oss-20b").file_type == 38


def test_two_different_file_types_contradict_each_other() -> None:
    with pytest.raises(UsageError, match="two file types"):
        resolve_model("llama-3.2-1b:Q8_0", "Q4_0")
    assert resolve_model("llama-3.2-1b:Q8_0", "Q8_0").file_type == 7


def test_a_path_and_the_folder_that_holds_it_mean_the_same_model(model_file: Path) -> None:
    by_path = resolve_model(str(model_file))
    assert by_path.architecture == "llama"
    assert resolve_model(str(model_file.parent)) == by_path
    assert file_types_for(str(model_file)) == ()


def test_a_folder_with_several_models_is_refused_and_they_are_named(model_file: Path) -> None:
    (model_file.parent / "other.gguf").write_bytes(model_file.read_bytes())
    with pytest.raises(InputError, match=r"2 models .*give other\.gguf, tiny-q4\.gguf"):
        resolve_model(str(model_file.parent))


def test_a_folder_is_searched_deep(tmp_path: Path, gguf_bytes: bytes) -> None:
    path = tmp_path / "owner" / "repo" / "tiny.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(gguf_bytes)
    assert resolve_model(str(tmp_path)) == resolve_model(str(path))
    (path.parent / "other.gguf").write_bytes(gguf_bytes)
    with pytest.raises(InputError, match=r"give owner/repo/other\.gguf, owner/repo/tiny\.gguf"):
        resolve_model(str(tmp_path))


def test_projectors_and_later_shards_in_a_folder_are_no_models(model_file: Path) -> None:
    for name in ("mmproj-tiny-f16.gguf", "big-00002-of-00003.gguf", "tiny.mmproj-Q8_0.gguf"):
        (model_file.parent / name).write_bytes(b"")
    assert resolve_model(str(model_file.parent)).architecture == "llama"


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no model in this folder"):
        resolve_model(str(tmp_path))


def test_a_config_is_a_model_of_any_file_type(config_file: Path) -> None:
    spec = resolve_model(f"{config_file}:Q8_0")
    assert (spec.name, spec.architecture, spec.file_type) == ("tiny-llama", "llama", 7)
    assert spec == resolve_model(str(config_file.parent), "Q8_0")
    assert spec.vocabulary_size == 320
    assert file_types_for(str(config_file)) == COMMON_FILE_TYPES


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "t5"}, "no layout for this kind of model"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"vocab_size": 1.5}, "vocab_size"),
        ({"num_hidden_layers": 10**12}, "num_hidden_layers"),
        ({"vocab_size": -3}, "vocab_size"),
        ({"intermediate_size": 0}, "shape"),
        ({"num_attention_heads": 7}, "7 heads do not divide the width .*hidden_size 256"),
        ({"num_key_value_heads": 3}, "3 key-value heads do not divide the heads"),
    ],
)
def test_a_config_that_describes_no_model_is_refused(
    config_file: Path, change: dict[str, object], message: str
) -> None:
    config_file.write_text(json.dumps({**CONFIG, **change}), encoding="utf-8")
    with pytest.raises(CpuboundError, match=message):
        resolve_model(str(config_file))


@pytest.mark.parametrize("text", ["", "[1]", "{", "[" * 100_000, '"x"'])
def test_a_config_that_is_no_json_object_is_refused(config_file: Path, text: str) -> None:
    config_file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="JSON"):
        resolve_model(str(config_file))


def test_a_config_is_checked_against_the_index_of_its_weights(config_file: Path) -> None:
    parameters = sum(tensor.elements for tensor in resolve_model(str(config_file)).tensors)
    index = config_file.with_name("model.safetensors.index.json")
    for stored, warnings in ((parameters, 0), (2 * parameters, 1)):
        metadata = {"total_size": 4 * stored, "total_parameters": stored}
        index.write_text(json.dumps({"metadata": metadata, "weight_map": {}}), encoding="utf-8")
        assert len(resolve_model(str(config_file)).warnings) == warnings
    with pytest.raises(InputError, match="index of weights"):
        resolve_model(str(index))


def test_the_size_of_weights_tells_their_count_where_their_type_is_known(config_file: Path) -> None:
    index = config_file.with_name("model.safetensors.index.json")
    index.write_text('{"metadata": {"total_size": 4e9}}', encoding="utf-8")
    assert resolve_model(str(config_file)).warnings == ()
    config_file.write_text(json.dumps({**CONFIG, "torch_dtype": "bfloat16"}), encoding="utf-8")
    assert "stored weights 2:" in resolve_model(str(config_file)).warnings[0]


def test_a_missing_path_is_a_missing_file_and_not_an_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no such file"):
        resolve_model(str(tmp_path / "absent.gguf"))
    with pytest.raises(ModelFileError, match="no such file"):
        resolve_model(r"C:\models\absent.gguf")


def test_a_file_has_its_own_file_type(model_file: Path) -> None:
    with pytest.raises(UsageError, match="has its file type already"):
        resolve_model(str(model_file), "Q4_0")


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no model of this name .*llama-3\.2-1b"):
        resolve_model("llama-3.2-1")
    with pytest.raises(UsageError, match=r"unknown file type .*Q4_K_M"):
        resolve_model("llama-3.2-1b:Q4_K_X")
    with pytest.raises(UsageError, match="no model given"):
        resolve_model(" ")


def test_a_name_without_a_file_type_means_every_common_one() -> None:
    assert file_types_for("llama-3.2-1b") == COMMON_FILE_TYPES
    assert file_types_for("llama-3.2-1b:Q4_0") == ()
    assert "MXFP4_MOE" in file_types_for("gpt-oss-20b")
    assert [spec.file_type for spec in resolve_models("smollm2-135m", "Q8_0, q4_0,Q8_0")] == [7, 2]
    assert len(resolve_models("smollm2-135m")) == len(COMMON_FILE_TYPES)
    assert len(resolve_models("smollm2-135m:Q8_0")) == 1


def test_all_file_types_are_those_that_fit_the_rows_of_the_model() -> None:
    assert len(resolve_models("llama-3.2-1b", "all")) == len(parse_file_types("all"))
    without_128 = {spec.file_type for spec in resolve_models("smollm2-360m", "all")}
    assert 40 not in without_128  # Q1_0 has blocks of 128: 960 is no multiple
    assert 15 in without_128


class Ollama:
    """A store as Ollama lays it out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, path: str, content: bytes, *, with_blob: bool = True) -> Path:
        digest = hashlib.sha256(content).hexdigest()
        manifest = self.folder / "manifests" / path
        manifest.parent.mkdir(parents=True, exist_ok=True)
        layers = [
            {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:" + "0" * 64},
            {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}"},
        ]
        manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}), encoding="utf-8")
        if with_blob:
            blob = self.folder / "blobs" / f"sha256-{digest}"
            blob.parent.mkdir(exist_ok=True)
            blob.write_bytes(content)
        return manifest


@pytest.fixture
def ollama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ollama:
    folder = tmp_path / "ollama"
    folder.mkdir()
    monkeypatch.setenv("OLLAMA_MODELS", str(folder))
    return Ollama(folder)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("llama3.2", "registry.ollama.ai/library/llama3.2/latest"),
        ("llama3.2:1b", "registry.ollama.ai/library/llama3.2/1b"),
        ("somebody/mine:q8", "registry.ollama.ai/somebody/mine/q8"),
        ("hf.co/owner/repo:Q4_K_M", "hf.co/owner/repo/Q4_K_M"),
    ],
)
def test_an_ollama_name_leads_to_its_blob(
    ollama: Ollama, gguf_bytes: bytes, name: str, path: str
) -> None:
    ollama.add(path, gguf_bytes)
    spec = resolve_model(f"ollama:{name}")
    assert (spec.name, spec.architecture) == (name, "llama")


def test_an_ollama_name_that_is_not_there_is_answered_with_what_is(
    ollama: Ollama, gguf_bytes: bytes
) -> None:
    ollama.add("registry.ollama.ai/library/qwen3/4b", gguf_bytes)
    with pytest.raises(InputError, match=r"no model of this name .*it has qwen3:4b"):
        resolve_model("ollama:qwen3")


@pytest.mark.parametrize("name", ["", "a/b/c/d", "../../x", "a:..", "a//b"])
def test_what_is_no_ollama_name_reads_nothing(ollama: Ollama, name: str) -> None:
    with pytest.raises(InputError, match="no name of an Ollama model"):
        resolve_model(f"ollama:{name}")


def test_broken_ollama_files_are_said_to_be_broken(ollama: Ollama, gguf_bytes: bytes) -> None:
    manifest = ollama.add("registry.ollama.ai/library/tiny/1", gguf_bytes, with_blob=False)
    with pytest.raises(ModelFileError, match="missing"):
        resolve_model("ollama:tiny:1")
    for text in ("{}", '{"layers": [{"mediaType": 3}, 4]}', '{"layers": 7}'):
        manifest.write_text(text, encoding="utf-8")
        with pytest.raises(ModelFileError, match="names no model"):
            resolve_model("ollama:tiny:1")
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:../../etc/x"}
    manifest.write_text(json.dumps({"layers": [layer]}), encoding="utf-8")
    with pytest.raises(ModelFileError, match="names no model"):
        resolve_model("ollama:tiny:1")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_without_rights_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0)
    with pytest.raises(InputError, match="cannot be read"):
        resolve_model(str(folder))
