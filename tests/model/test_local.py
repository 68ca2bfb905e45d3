"""Models on this machine: found in every store, each once, and nothing else."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from cpubound.model.stores import local_models

VARIABLES = (*("OLLAMA_MODELS", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "LLAMA_CACHE"),)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / ".ollama" / "models"))
    return tmp_path


def put(path: Path, content: bytes = b"GGUF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def put_ollama(home: Path, name: str, tag: str, content: bytes) -> None:
    store = home / ".ollama" / "models"
    digest = hashlib.sha256(content).hexdigest()
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}"}
    manifest = store / "manifests" / "registry.ollama.ai" / "library" / name / tag
    put(manifest, json.dumps({"layers": [layer]}).encode())
    put(store / "blobs" / f"sha256-{digest}", content)


def test_a_machine_without_models_has_none(home: Path) -> None:
    assert local_models() == ()


def test_every_store_is_looked_through(home: Path) -> None:
    put_ollama(home, "llama3.2", "1b", b"one")
    hub = home / ".cache" / "huggingface" / "hub" / "models--o--r" / "snapshots" / "abc"
    put(hub / "sub" / "a-Q4_0.gguf")
    put(home / ".lmstudio" / "models" / "o" / "r" / "b.gguf")
    put(home / ".cache" / "llama.cpp" / "c.gguf")
    put(home / "mine" / "d.gguf")
    found = local_models([home / "mine"])
    assert [(model.store, model.path.name) for model in found if model.store != "Ollama"] == [
        ("Hugging Face", "a-Q4_0.gguf"),
        ("LM Studio", "b.gguf"),
        ("folder", "d.gguf"),
        ("llama.cpp", "c.gguf"),
    ]
    assert [model.argument for model in found if model.store == "Ollama"] == ["ollama:llama3.2:1b"]


def test_later_shards_projectors_and_other_files_are_left_out(home: Path) -> None:
    folder = home / ".cache" / "llama.cpp"
    for name in ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "mmproj-m.gguf", "m.json"):
        put(folder / name)
    assert [model.path.name for model in local_models()] == ["m-00001-of-00002.gguf"]


def test_a_file_under_two_names_is_listed_once(home: Path) -> None:
    blob = put(home / ".cache" / "huggingface" / "hub" / "models--o--r" / "blobs" / "123")
    for revision in ("abc", "def"):
        link = blob.parent.parent / "snapshots" / revision / "m.gguf"
        link.parent.mkdir(parents=True)
        link.symlink_to(blob)
    assert len(local_models()) == 1


def test_a_model_that_ollama_has_only_in_part_is_left_out(home: Path) -> None:
    put_ollama(home, "whole", "1", b"one")
    put_ollama(home, "part", "1", b"two")
    digest = hashlib.sha256(b"two").hexdigest()
    (home / ".ollama" / "models" / "blobs" / f"sha256-{digest}").unlink()
    assert [model.argument for model in local_models()] == ["ollama:whole:1"]
