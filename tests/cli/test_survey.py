"""Many models at once: which of the catalogue are looked at, and which files found here."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf_bytes import GgufBytes

from cpubound.cli import main
from cpubound.cli.survey import FITS_FILE_TYPES, catalogue_specs, local_specs
from cpubound.model.catalog import catalog_names
from cpubound.model.gguf import read_gguf

GB = 10**9


def test_every_model_of_the_catalogue_is_looked_at_where_memory_is_not_known() -> None:
    specs = list(catalogue_specs())
    assert {spec.name for spec in specs} == set(catalog_names())
    assert {spec.file_type for spec in specs if spec.name == "llama-3.2-1b"} == {
        *(7, 18, 15, 2, 30, 12),
    }
    assert len(FITS_FILE_TYPES) == 6


def test_no_model_that_would_fit_is_left_out_for_its_size() -> None:
    memory = 8 * GB
    would_fit = {
        (spec.name, spec.file_type)
        for spec in catalogue_specs()
        if sum(tensor.n_bytes for tensor in spec.tensors) <= memory
    }
    looked_at = {(spec.name, spec.file_type) for spec in catalogue_specs(memory)}
    assert would_fit <= looked_at
    assert len(looked_at) < 1.1 * len(would_fit)


def test_a_broken_file_among_those_found_here_is_passed_over_aloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "none"))
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path))
    for name in ("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "good.gguf").write_bytes(GgufBytes().packed())
    (tmp_path / "web.gguf").write_bytes(b"<html>")
    assert [spec.name for spec in local_specs()] == ["good"]
    assert "passed over: " in capsys.readouterr().err


def test_a_config_becomes_a_file_of_its_shape(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        '{"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2,'
        ' "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2,'
        ' "vocab_size": 320, "max_position_embeddings": 512, "rms_norm_eps": 1e-5}'
    )
    target = tmp_path / "out.gguf"
    assert main(["synth", f"{config}:F16", "-o", str(target)]) == 0
    spec = read_gguf(target)
    assert (spec.architecture, spec.vocabulary_size, spec.file_type) == ("llama", 320, 1)
    assert main(["synth", str(target), "-o", str(tmp_path / "again.gguf")]) == 2
