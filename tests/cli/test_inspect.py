"""``inspect``: the table, the JSON contract, and rule beside graph."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fakes import tiny_model
from gguf_bytes import STRING, GgufBytes, pair

from cpubound.engine import find_runner
from cpubound.engine.values import GraphCount
from cpubound.model.traffic import compute_traffic
from cpubound.model.values import ModelTraffic
from cpubound.report.verification import compare_parts
from cpubound.setting import Setting

Run = Callable[..., tuple[int, str, str]]

CONTRACT = {
    "schema": str,
    "model": str,
    "architecture": str,
    "quant_label": str,
    "parameters": int,
    "active_parameters": int,
    "file_bytes": int,
    "depth_tokens": int,
    "n_ctx": int,
    "batch": int,
    "kv_type_k": str,
    "kv_type_v": str,
    "flash_attn": bool,
    "weights_read_bytes": int,
    "embedding_row_bytes": int,
    "kv_read_bytes": int,
    "kv_write_bytes": int,
    "state_read_bytes": int,
    "state_write_bytes": int,
    "total_bytes": int,
    "resident_bytes": int,
    "by_type": dict,
    "by_role": dict,
}


@pytest.fixture
def run(invoke: Run) -> Run:
    return partial(invoke, "inspect")


def document(run: Run, *arguments: str) -> dict[str, Any]:
    code, out, err = run(*arguments, "--json", "-")
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


def test_the_document_has_the_fields_of_the_contract(run: Run) -> None:
    found = document(run, "llama-3.1-8b:Q4_K_M", "--depth", "4095")
    assert {key: type(found[key]) for key in CONTRACT} == CONTRACT
    assert found["schema"] == "cpubound.traffic/1"
    parts = ("weights_read_bytes", "embedding_row_bytes", "kv_read_bytes", "kv_write_bytes")
    assert found["total_bytes"] == sum(found[part] for part in parts)
    assert found["kv_read_bytes"] == 4096 * 128 * 1024
    assert sum(found["by_role"].values()) == sum(found["by_type"].values())


@pytest.mark.parametrize(
    ("model", "kib"), [("llama-3.1-8b", 128), ("qwen3-32b", 256), ("llama-3.3-70b", 320)]
)
def test_a_token_of_context_costs_what_the_published_shape_says(
    run: Run, model: str, kib: int
) -> None:
    assert document(run, f"{model}:Q8_0")["kv_write_bytes"] == kib * 1024


def test_settings_reach_the_figures(run: Run) -> None:
    plain = document(run, "llama-3.1-8b:Q8_0", "--depth", "255")
    two = document(run, "llama-3.1-8b:Q8_0", "--depth", "255", "--batch", "2", "--n-ctx", "1000")
    mixed = document(run, "llama-3.1-8b:Q8_0", "--depth", "255", "--kv-type", "q8_0:f16")
    assert two["kv_read_bytes"] == 2 * plain["kv_read_bytes"]
    assert (two["batch"], two["n_ctx"]) == (2, 1024)
    assert (mixed["kv_type_k"], mixed["kv_type_v"]) == ("q8_0", "f16")
    assert mixed["kv_read_bytes"] == plain["kv_read_bytes"] * (34 + 64) // 128
    off = document(run, "llama-3.1-8b:Q8_0", "--flash-attn", "off")
    assert (plain["flash_attn"], off["flash_attn"]) == (True, False)


def test_a_context_that_only_rounding_makes_large_enough_is_told(run: Run) -> None:
    found = document(run, "llama-3.2-1b:Q8_0", "--depth", "200", "--n-ctx", "100")
    assert found["n_ctx"] == 256
    assert any("a context of 100 does not hold 200 tokens" in n for n in found["assumptions"])
    for n_ctx in ("201", "300"):
        found = document(run, "llama-3.2-1b:Q8_0", "--depth", "200", "--n-ctx", n_ctx)
        assert found["assumptions"] == []
    code, _, err = run("llama-3.2-1b:Q8_0", "--depth", "300", "--n-ctx", "100")
    assert code == 2
    assert "give at least 301" in err


def test_the_table_of_a_mixture_shows_active_and_total(run: Run) -> None:
    code, out, _ = run("qwen3-30b-a3b:Q4_K_M")
    assert code == 0
    assert "30.5 B parameters, 3.35 B of them active" in out
    # 8 of 128 experts, up to rounding: what is read is a sixteenth.
    assert "Of the experts 1.10 GB are chosen and read, of 17.6 GB in all." in out
    assert "embedding (rows)" in out
    assert "Only looked up by row" in out
    assert max(len(line) for line in out.splitlines()) <= 100


def test_csv_has_plain_numbers_that_add_up(run: Run) -> None:
    code, out, _ = run("llama-3.2-1b:Q8_0", "--depth", "100", "--format", "csv")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    total = document(run, "llama-3.2-1b:Q8_0", "--depth", "100")["total_bytes"]
    assert sum(int(row["bytes"]) for row in rows) == total


def test_markdown_is_a_table_between_two_paragraphs(run: Run) -> None:
    code, out, _ = run("llama-3.2-1b:Q8_0", "--format", "markdown")
    assert code == 0
    assert out.count("\n\n") == 2
    assert "|--" in out


def test_a_file_beside_the_table_is_not_overwritten_unless_forced(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "traffic.json"
    assert run("llama-3.2-1b:Q8_0", "--json", str(path))[0] == 0
    assert json.loads(path.read_text())["model"] == "llama-3.2-1b"
    path.write_text("mine")
    code, _, err = run("llama-3.2-1b:Q8_0", "--json", str(path))
    assert code == 2
    assert "--force" in err
    assert path.read_text() == "mine"
    assert run("llama-3.2-1b:Q8_0", "--json", str(path), "--force")[0] == 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"<html>", "web page"),
        (GgufBytes().packed()[:-10], "cut short by 10"),
        (GgufBytes(pairs=[pair("general.architecture", STRING, "clip")]).packed(), "projector"),
    ],
)
def test_a_file_that_is_no_model_ends_with_3_and_one_line(
    run: Run, tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    code, out, err = run(str(path))
    assert (code, out) == (3, "")
    assert err.startswith("cpubound: error: ")
    assert err.count("\n") == 1
    assert words in err


def test_a_setting_that_llama_cpp_refuses_ends_with_2(run: Run) -> None:
    code, _, err = run("llama-3.2-1b:Q8_0", "--kv-type", "q8_0", "--flash-attn", "off")
    assert code == 2
    assert "works only with flash-attention" in err


# -- rule beside graph -----------------------------------------------------------------


def counted(traffic: ModelTraffic, **changes: int) -> GraphCount:
    """What the graph would have counted if the rules were right."""
    weights = {
        f"blk.0.{'attn' if read.role == 'attention' else read.role}_{index}.weight": read.n_bytes
        for index, read in enumerate(traffic.weights)
        if read.role in ("attention", "ffn")
    }
    rest = traffic.weights_read_bytes - sum(weights.values())
    fields: dict[str, Any] = {
        "weight_bytes": traffic.weights_read_bytes,
        "row_bytes": traffic.embedding_row_bytes,
        "cache_read_bytes": traffic.kv_read_bytes,
        "cache_write_bytes": traffic.kv_write_bytes,
        "nodes": 1,
        "weights": weights | {"token_embd.weight": rest},
        "operators": {},
    }
    return GraphCount(**(fields | changes))


def test_parts_that_agree_are_not_marked() -> None:
    traffic = compute_traffic(tiny_model("F16"), Setting(flash_attn=False))
    parts = {part.name: part for part in compare_parts(traffic, counted(traffic))}
    assert parts["attention"].rule_bytes == parts["attention"].graph_bytes > 0
    assert parts["all weights"].agrees
    assert parts["cache and state, read"].agrees


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("weight_bytes", "all weights"),
        ("row_bytes", "rows of tables"),
        ("cache_read_bytes", "cache and state, read"),
        ("cache_write_bytes", "cache and state, written"),
    ],
)
def test_a_part_that_differs_is_marked(field: str, name: str) -> None:
    traffic = compute_traffic(tiny_model("F16"), Setting(flash_attn=False))
    right = counted(traffic)
    parts = compare_parts(traffic, counted(traffic, **{field: getattr(right, field) * 2}))
    assert name in {part.name for part in parts if not part.agrees}


def test_a_shape_without_a_file_cannot_be_verified(run: Run) -> None:
    code, _, err = run("llama-3.2-1b:Q8_0", "--verify")
    assert code == 2
    assert "--verify runs a file" in err


@pytest.mark.engine
@pytest.mark.skipif(find_runner() is None, reason="llama-cpp-python is not installed")
def test_verify_runs_a_step_and_finds_rule_and_graph_equal(run: Run, tmp_path: Path) -> None:
    from cpubound.engine.synth import write_model

    path = tmp_path / "tiny.gguf"
    write_model(tiny_model("Q8_0"), path)
    found = document(run, str(path), "--verify", "--depth", "10")
    assert found["schema"] == "cpubound.traffic-check/1"
    assert {part["name"] for part in found["parts"]} >= {"attention", "ffn", "all weights"}
    assert all(part["rule_bytes"] == part["graph_bytes"] for part in found["parts"])
