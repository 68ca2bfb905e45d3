"""Names as people and programs write them, and what a store on this machine keeps."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from gguf_bytes import GgufBytes

from cpubound.errors import InputError, UsageError
from cpubound.model.catalog import catalog_names
from cpubound.model.names import read_name
from cpubound.model.resolve import resolve_model
from cpubound.package_data import read_toml


@pytest.mark.parametrize(
    ("text", "name", "file_type"),
    [
        ("llama3.1:8b", "llama-3.1-8b", None),
        ("llama3.1", "llama-3.1-8b", None),
        ("llama3.1:latest", "llama-3.1-8b", None),
        ("llama3.1:8b-instruct-q4_K_M", "llama-3.1-8b", "Q4_K_M"),
        ("qwen3:8b-q4_K_M", "qwen3-8b", "Q4_K_M"),
        ("qwen3:30b", "qwen3-30b-a3b", None),
        ("qwen3:235b-a22b-q8_0", "qwen3-235b-a22b", "Q8_0"),
        ("gemma3:4b-it-qat", "gemma-3-4b", "Q4_0"),
        ("gemma3:270m", "gemma-3-270m", None),
        ("gpt-oss:20b", "gpt-oss-20b", None),
        ("deepseek-r1:7b", "deepseek-r1-distill-qwen-7b", None),
        ("mixtral:8x7b-instruct-v0.1-q5_K_S", "mixtral-8x7b", "Q5_K_S"),
        ("phi4-mini", "phi-4-mini", None),
        ("smollm2:135m", "smollm2-135m", None),
        ("llama-3.1-8b:q4", "llama-3.1-8b", "Q4_K_M"),
        ("llama-3.1-8b:q8", "llama-3.1-8b", "Q8_0"),
        ("llama-3.1-8b:fp16", "llama-3.1-8b", "F16"),
        ("llama-3.1-8b:4bit", "llama-3.1-8b", "Q4_K_M"),
        ("Llama 3.1 8B Q6_K", "llama-3.1-8b", "Q6_K"),
        ("Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf", "llama-3.1-8b", "Q4_K_M"),
        ("google_gemma-3-4b-it-IQ4_XS.gguf", "gemma-3-4b", "IQ4_XS"),
        ("Qwen3-30B-A3B-Instruct-2507-UD-Q4_K_XL.gguf", "qwen3-30b-a3b", "Q4_K_M"),
        ("unsloth/Llama-3.2-1B-Instruct-GGUF", "llama-3.2-1b", None),
        ("unsloth/Llama-3.2-1B-Instruct-GGUF:Q4_K_M", "llama-3.2-1b", "Q4_K_M"),
        ("hf.co/bartowski/Llama-3.2-3B-Instruct-GGUF:Q8_0", "llama-3.2-3b", "Q8_0"),
        ("https://huggingface.co/Qwen/Qwen3-8B-GGUF", "qwen3-8b", None),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b", None),
    ],
)
def test_a_name_as_people_write_it_means_a_model_of_the_catalogue(
    text: str, name: str, file_type: str | None
) -> None:
    found = read_name(text)
    assert found is not None
    assert (found.name, found.file_type_name) == (name, file_type)


@pytest.mark.parametrize("text", ["", "llama", "gpt-5", "Llama-3.1-8B-Lexi-Uncensored", "a/b/c"])
def test_a_name_that_may_be_another_model_means_none(text: str) -> None:
    assert read_name(text) is None


def test_every_name_of_the_catalogue_means_itself() -> None:
    for name in catalog_names():
        found = read_name(name)
        assert found is not None
        assert found.name == name


def test_every_tag_means_a_model_of_the_catalogue() -> None:
    assert set(read_toml("model", "tags.toml").values()) <= set(catalog_names())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    for name in ("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "LLAMA_CACHE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def keep_in_ollama(home: Path, model: str, tag: str, parameters: object) -> None:
    layers = []
    for media, content in (
        ("model", GgufBytes().packed()),
        ("params", json.dumps(parameters).encode()),
    ):
        digest = hashlib.sha256(content).hexdigest()
        blob = home / "ollama" / "blobs" / f"sha256-{digest}"
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(content)
        layers.append(
            {"mediaType": f"application/vnd.ollama.image.{media}", "digest": f"sha256:{digest}"}
        )
    manifest = home / "ollama" / "manifests" / "registry.ollama.ai" / "library" / model / tag
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"layers": layers}))


def keep_in_lm_studio(home: Path, name: str, fields: object) -> Path:
    path = home / ".lmstudio" / "models" / "owner" / "Tiny-GGUF" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(GgufBytes().packed())
    settings = home / ".lmstudio" / ".internal" / "user-concrete-model-default-config"
    settings = settings / "owner" / "Tiny-GGUF" / f"{name}.json"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(json.dumps({"load": {"fields": fields}}))
    return path


def test_a_model_of_ollama_has_its_own_name_and_parameters(home: Path) -> None:
    keep_in_ollama(home, "llama3.1", "8b", {"num_thread": 4, "num_ctx": 8192, "stop": ["x"]})
    spec = resolve_model("llama3.1:8b")
    assert spec.name == "llama3.1:8b"
    assert spec.shards
    assert (spec.default_threads, spec.default_n_ctx) == (4, 8192)


@pytest.mark.parametrize("parameters", [{}, {"num_thread": "4", "num_ctx": -1}, {"num_ctx": True}])
def test_parameters_that_are_no_counts_set_nothing(home: Path, parameters: object) -> None:
    keep_in_ollama(home, "tiny", "latest", parameters)
    spec = resolve_model("tiny")
    assert (spec.default_threads, spec.default_n_ctx) == (None, None)


@pytest.mark.parametrize("text", ["tiny-Q8_0", "Tiny-Q8_0.gguf", "owner/Tiny-GGUF", "owner/tiny"])
def test_a_model_of_lm_studio_has_its_own_names_and_settings(home: Path, text: str) -> None:
    fields = [
        {"key": "llm.load.contextLength", "value": 4096},
        {"key": "llm.load.llama.cpuThreadPoolSize", "value": 6},
    ]
    keep_in_lm_studio(home, "tiny-Q8_0.gguf", fields)
    spec = resolve_model(text)
    assert (spec.default_threads, spec.default_n_ctx) == (6, 4096)


def test_a_name_of_several_files_asks_for_one(home: Path) -> None:
    for name in ("tiny-Q4_0.gguf", "tiny-Q8_0.gguf"):
        keep_in_lm_studio(home, name, [])
    with pytest.raises(InputError, match=r"2 models here.*tiny-Q4_0\.gguf, .*tiny-Q8_0\.gguf"):
        resolve_model("owner/Tiny-GGUF")


def test_a_file_name_whose_file_is_not_here_is_said_to_be_the_catalogues(home: Path) -> None:
    spec = resolve_model("Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf")
    assert (spec.name, spec.file_type) == ("llama-3.1-8b", 15)
    assert "no file of this name is here" in spec.warnings[0]
    assert not resolve_model("llama3.1:8b").warnings


@pytest.mark.parametrize("path", ["./Qwen3-8B-Q4_K_M.gguf", "m/Qwen3-8B-Q4_K_M.gguf", "/m/x/y"])
def test_a_path_that_is_not_there_is_no_name(home: Path, path: str) -> None:
    with pytest.raises(InputError, match="no such file"):
        resolve_model(path)


def test_an_unknown_name_is_answered_with_near_ones(home: Path) -> None:
    with pytest.raises(UsageError, match=r"did you mean .*llama-3\.1-8b") as refused:
        resolve_model("llama-3.1-9b")
    assert len(str(refused.value)) < 200
