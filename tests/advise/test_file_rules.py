"""Rules about model files: each finds what was reported, and not what nearly is so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from finding_checks import check_finding
from gguf_bytes import STRING, U16, GgufBytes, pair
from runs import case_of

from cpubound.advise.case import ModelCase
from cpubound.advise.refusals import REFUSALS, finding_of_refusal
from cpubound.advise.registry import FILE_RULES, find_file_findings
from cpubound.advise.values import ERROR, INFO
from cpubound.errors import ModelFileError
from cpubound.model.quant import unknown_quant_type
from cpubound.model.resolve import resolve_model

MIB = 2**20
LLAMA = pair("general.architecture", STRING, "llama")
Make = Callable[[], ModelCase]


def retyped(model: str, type_id: int, tensors: str) -> ModelCase:
    """A model some of whose tensors are of a type that nobody knows."""
    spec = case_of(model).spec
    unknown = unknown_quant_type(type_id)
    return ModelCase(
        spec=replace(
            spec,
            tensors=tuple(
                replace(t, type=unknown) if tensors in t.name else t for t in spec.tensors
            ),
        )
    )


def labelled(model: str, file_type: int) -> ModelCase:
    return ModelCase(spec=replace(case_of(model).spec, file_type=file_type))


# Code: a model that has it, and one that nearly does.
CASES: dict[str, tuple[Make, Make]] = {
    "beyond-training": (
        lambda: case_of("llama-3-8b", depth_tokens=8193),
        lambda: case_of("llama-3-8b", depth_tokens=8191, allocated_context_tokens=8192),
    ),
    # "all F32 (guessed)" on a mix of 2.7 bits a weight.
    "mislabelled": (
        lambda: labelled("llama-3.1-8b:Q2_K", 0),
        lambda: labelled("llama-3.1-8b:Q2_K", 10),
    ),
    "unknown-type": (
        lambda: retyped("llama-3.2-1b:Q4_0", 142, "ffn_down"),
        lambda: case_of("llama-3.2-1b:Q4_0"),
    ),
    # A 30B with 3B active runs like a 3B.
    "moe": (lambda: case_of("qwen3-30b-a3b"), lambda: case_of("qwen3-4b")),
    "lookup-tables": (
        lambda: case_of("gemma-3n-e4b:Q4_0"),
        lambda: case_of("llama-3.1-405b:Q4_0"),
    ),
    "tied-output": (
        lambda: case_of("llama-3.2-1b:Q8_0"),
        lambda: case_of("llama-3.1-8b:Q8_0"),
    ),
    "sliding-window": (
        lambda: case_of("gemma-3-1b", depth_tokens=8192),
        lambda: case_of("gemma-3-1b", depth_tokens=256),
    ),
    "mla": (
        lambda: case_of("deepseek-v2-lite", depth_tokens=8192),
        lambda: case_of("deepseek-v2-lite", depth_tokens=0),
    ),
    "recurrent": (
        lambda: case_of("qwen3-next-80b-a3b", depth_tokens=32768),
        lambda: case_of("qwen3-next-80b-a3b", depth_tokens=0),
    ),
}


def test_every_rule_has_a_case() -> None:
    assert set(CASES) == set(FILE_RULES)


@pytest.mark.parametrize("code", CASES)
def test_a_rule_finds_what_it_looks_for(code: str) -> None:
    check_finding(FILE_RULES[code][1](CASES[code][0]()), code)


@pytest.mark.parametrize("code", CASES)
def test_a_rule_does_not_find_what_is_nearly_so(code: str) -> None:
    assert FILE_RULES[code][1](CASES[code][1]()) is None


def test_a_table_is_read_by_the_row() -> None:
    """A table of 167 MiB costs 1,152 bytes a token: 2048 numbers of Q4_0."""
    finding = FILE_RULES["lookup-tables"][1](case_of("tinyllama-1.1b:Q4_0"))
    assert finding is not None
    assert finding.evidence["row_bytes"] == 1152
    per_layer = FILE_RULES["lookup-tables"][1](case_of("gemma-3n-e4b:Q8_0"))
    assert per_layer is not None
    assert per_layer.evidence["table_bytes"] > 2000 * MIB
    assert per_layer.evidence["row_bytes"] < 20_000


def test_a_tied_table_is_counted_once_in_full() -> None:
    case = case_of("llama-3.2-1b:Q8_0")
    finding = FILE_RULES["tied-output"][1](case)
    assert finding is not None
    # 1.24 billion weights of 8.5 bits, the table among them once.
    assert finding.evidence["weights_read_bytes"] == pytest.approx(1.236e9 * 8.5 / 8, rel=0.01)
    assert finding.evidence["table_bytes"] == 128256 * 2048 * 34 // 32


def test_a_mixture_shows_active_and_total_bytes() -> None:
    finding = FILE_RULES["moe"][1](case_of("qwen3-30b-a3b:Q4_0"))
    assert finding is not None
    assert finding.evidence["parameters"] == pytest.approx(30.5e9, rel=0.01)
    assert finding.evidence["active_parameters"] == pytest.approx(3.3e9, rel=0.05)
    assert finding.evidence["weights_read_bytes"] < 0.15 * finding.evidence["file_bytes"]


def test_the_usual_formula_over_estimates_a_compressed_cache_by_much() -> None:
    finding = FILE_RULES["mla"][1](case_of("deepseek-v3", depth_tokens=8192))
    assert finding is not None
    # 128 heads of 192 + 128 against one vector of 576 + 512 read as K and V.
    assert finding.evidence["usual_formula_bytes"] > 6 * finding.evidence["kv_read_bytes"]


def test_windows_cap_what_their_layers_read() -> None:
    finding = FILE_RULES["sliding-window"][1](case_of("gemma-3-1b", depth_tokens=32000))
    assert finding is not None
    ratio = finding.evidence["usual_formula_bytes"] / finding.evidence["kv_read_bytes"]
    # 26 layers of which 4 are full; windows hold 512 + 512 cells.
    assert 4 < ratio < 26 / 4


def test_an_unknown_type_is_named_with_its_number() -> None:
    finding = FILE_RULES["unknown-type"][1](CASES["unknown-type"][0]())
    assert finding is not None
    assert "unknown type 142" in finding.message
    assert finding.evidence["tensors"] == 16


def test_a_plain_model_has_nothing_to_find() -> None:
    assert find_file_findings(case_of("llama-3.1-405b:Q4_0")) == ()


def test_what_a_form_explains_costs_nothing() -> None:
    for code, (positive, _) in CASES.items():
        finding = FILE_RULES[code][1](positive())
        assert finding is not None
        if finding.severity == INFO:
            assert finding.cost_tokens_per_s == 0.0


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"<!DOCTYPE html><html>", "not-gguf"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "not-gguf"),
        (b"GGUF\x03\x00\x00\x00\x02", "truncated"),
        (GgufBytes(data_bytes=511).packed(), "truncated"),
        (GgufBytes().packed() + GgufBytes().packed(), "split"),
        (GgufBytes(pairs=[LLAMA, pair("split.count", U16, 2)]).packed(), "split"),
        (GgufBytes(pairs=[LLAMA, pair("general.type", STRING, "mmproj")]).packed(), "projector"),
        (GgufBytes(pairs=[LLAMA], tensors=[]).packed(), "projector"),
    ],
)
def test_a_refused_file_has_the_code_of_its_cause(
    tmp_path: Path, content: bytes, code: str
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError) as caught:
        resolve_model(str(path))
    finding = finding_of_refusal(caught.value)
    assert finding is not None
    assert finding.code == code
    assert finding.severity == ERROR
    assert str(path) in finding.message


def test_a_file_cut_short_says_by_how_much(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(GgufBytes(data_bytes=412).packed())
    with pytest.raises(ModelFileError) as caught:
        resolve_model(str(path))
    finding = finding_of_refusal(caught.value)
    assert finding is not None
    assert finding.evidence["missing_bytes"] == 100


def test_a_missing_shard_is_a_split(tmp_path: Path) -> None:
    path = tmp_path / "model-00001-of-00002.gguf"
    pairs = [LLAMA, pair("split.count", U16, 2), pair("split.no", U16, 0)]
    path.write_bytes(GgufBytes(pairs=pairs).packed())
    with pytest.raises(ModelFileError) as caught:
        resolve_model(str(path))
    assert caught.value.code == "split"
    assert caught.value.evidence == {"shards": 2, "shard": 2}


def test_an_error_of_another_cause_has_no_finding() -> None:
    assert finding_of_refusal(ModelFileError("no such file (x): check the path")) is None
    assert set(REFUSALS) == {"truncated", "not-gguf", "split", "projector"}
