"""``cpubound roofline`` from outside."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest
from builders import GB, build_engine, build_machine, build_profile

from cpubound.profile.file import save_profile
from cpubound.profile.values import PeakRate

Run = Callable[..., tuple[int, str, str]]
H100 = ("--machine", "h100-sxm")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invoke: Run) -> Run:
    monkeypatch.setenv("CPUBOUND_HOME", str(tmp_path))

    return partial(invoke, "roofline")


@pytest.fixture
def with_profile(tmp_path: Path) -> None:
    types = ("F16", "Q8_0", "Q4_0", "Q6_K", "Q4_K")
    engine = build_engine(
        {name: {1: 9.0 * GB, 2: 17.0 * GB} for name in types},
        attention={("f16", "f16", True): 5.0 * GB},
    )
    profile = build_profile({1: 20.0 * GB, 2: 30.0 * GB}, engine, machine=build_machine(2))
    save_profile(profile, tmp_path / "profile.json")


def test_a_published_machine_shows_balance_budget_and_n_star(run: Run) -> None:
    code, out, err = run("qwen3-32b:BF16", *H100)
    assert (code, err) == (0, "")
    assert "machine balance 295 FLOP/byte" in out
    assert "n*: from 848 tokens" in out
    assert "12 sequences of 4096 tokens, not 64" in out
    assert "share of bandwidth" in out


def test_the_document_has_the_fields_of_the_contract(run: Run) -> None:
    code, out, _ = run("qwen3-30b-a3b:Q4_K_M", *H100, "--ctx", "0,4096", "--json", "-")
    document = json.loads(out)
    assert code == 0
    assert document["schema"] == "cpubound.roofline/1"
    assert set(document) == {
        "schema", "model", "quant_label", "parameters", "active_parameters", "weight_bits",
        "kv_type_k", "kv_type_v", "resident_weight_bytes", "machine", "contexts", "points",
        "n_star", "variants", "experts", "speculation", "notes",
    }  # fmt: skip
    assert document["machine"]["machine_balance"] == pytest.approx(295.2, abs=0.05)
    assert [row["context_tokens"] for row in document["contexts"]] == [0, 4096]
    assert document["contexts"][0]["compute_bound_possible"] is True
    assert document["contexts"][1]["compute_bound_possible"] is False
    assert document["contexts"][1]["ridge_batch"] is None
    assert document["n_star"] == {"tokens": 214.0, "exists": True}
    assert len(document["points"]) == 6
    assert document["experts"]["count"] == 128
    assert set(document["points"][0]["operators"][0]) == {
        "name", "flops", "bytes", "intensity", "roof",
    }  # fmt: skip


def test_csv_has_plain_numbers_and_markdown_pipe_tables(run: Run) -> None:
    _, out, _ = run("llama-3.1-8b", *H100, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == 9
    assert float(rows[0]["intensity"]) > 1
    assert rows[0]["roof"] == "memory"
    _, out, _ = run("llama-3.1-8b", *H100, "--format", "markdown")
    assert sum(line.startswith("|--") for line in out.splitlines()) >= 4


def test_a_wrong_peak_can_be_reproduced(run: Run) -> None:
    """495 TFLOP/s, as a published page calls dense, gives its balance of 148."""
    _, out, _ = run("llama-2-7b:BF16", *H100, "--peak-flops", "495e12", "--json", "-")
    machine = json.loads(out)["machine"]
    assert machine["machine_balance"] == pytest.approx(148, abs=0.3)
    assert machine["peak_origin"] == "given"
    assert machine["compute_precision"] is None


def test_weight_bytes_and_compute_precision_are_set_apart(run: Run) -> None:
    def n_star(*options: str) -> float:
        _, out, _ = run("qwen3-32b:BF16", *H100, *options, "--json", "-")
        return float(json.loads(out)["n_star"]["tokens"])

    both = n_star()
    assert n_star("--weight-bytes", "1") == both
    assert n_star("--compute-precision", "fp8") == pytest.approx(both / 2, rel=0.02)


@pytest.mark.usefixtures("with_profile")
def test_this_machine_says_what_it_does_not_know(run: Run) -> None:
    code, out, err = run("llama-3.2-1b:Q4_0")
    assert (code, err) == (0, "")
    assert "Bandwidth 30.0 GB/s (read, measured by calibrate)" in out
    assert "Peak FLOP/s not known" in out
    assert "ridge batch" not in out
    assert "n*:" not in out
    assert "batches count bytes only" in out
    _, out, _ = run("llama-3.2-1b:Q4_0", "--peak-flops", "3e11")
    assert "machine balance 10.0" in out


def test_the_measured_peak_is_that_of_the_products_that_llama_cpp_makes(
    run: Run, tmp_path: Path
) -> None:
    peak = tuple(
        PeakRate(dtype=dtype, isa="avx2", threads=2, flops_per_s=rate, samples_flops_per_s=(rate,))
        for dtype, rate in (("fp32", 1e11), ("int8", 4e11))
    )
    profile = msgspec.structs.replace(build_profile({2: 30.0 * GB}), peak=peak)
    save_profile(profile, tmp_path / "profile.json")
    for quant, rate in (("Q4_0", 4e11), ("F16", 1e11)):
        _, out, _ = run(f"llama-3.2-1b:{quant}", "--json", "-")
        machine = json.loads(out)["machine"]
        assert machine["flops_per_s"] == pytest.approx(rate)
        assert "measured by calibrate" in machine["peak_origin"]


@pytest.mark.usefixtures("with_profile")
def test_speculation_here_rests_on_the_roofs_where_batches_were_not_measured(run: Run) -> None:
    code, out, _ = run(
        "llama-3.1-8b:Q4_0", "--draft", "llama-3.2-1b:Q4_0", "--acceptance", "0.6,0.9", "--k", "3"
    )
    assert code == 0
    assert "from the two roofs" in out
    assert "gains are at most" in out
    assert "speed-up at k=3" in out


def test_speculation_here_rests_on_measured_batches(run: Run, tmp_path: Path) -> None:
    """Where four tokens cost four times one token, drafting cannot gain."""
    rates = {"Q4_0": {2: 20.0 * GB}, "Q6_K": {2: 20.0 * GB}}
    batches = {f"bytes:{name}@{n}": n / (20.0 * GB) for name in rates for n in (2, 4, 8, 32)}
    engine = build_engine(rates, seconds=batches)
    save_profile(build_profile({2: 30.0 * GB}, engine), tmp_path / "profile.json")
    _, out, _ = run("llama-3.1-8b:Q4_0", "--draft", "llama-3.2-1b:Q4_0", "--k", "3")
    assert "measured rates for so many tokens at once" in out
    assert "a pass over 4 tokens " in out
    assert "no gain possible here" in out


def test_speculation_on_a_published_machine_rests_on_the_roofs(run: Run) -> None:
    _, out, _ = run("qwen3-32b:BF16", *H100, "--draft", "ngram", "--json", "-")
    outlook = json.loads(out)["speculation"]
    assert outlook["basis"] == "from the two roofs"
    assert outlook["draft_seconds"] == 0
    assert outlook["break_even"] == pytest.approx(0, abs=0.01)


def test_where_compute_binds_no_draft_gains(run: Run) -> None:
    _, out, _ = run(
        "llama-3.1-8b:Q4_0", "--machine", "ddr5-5600", "--peak-flops", "1e11", "--draft", "qwen3-8b"
    )
    assert "no gain possible here" in out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("llama-3.1-8b", "--machine", "h100"), 2, "h100-sxm"),
        (("llama-3.1-8b", "--machine", "a100-80gb", "--compute-precision", "fp8"), 2, "bf16"),
        (("llama-3.1-8b",), 3, "calibrate"),
        (("llama-3.1-8b", *H100, "--batch", "0"), 2, "0"),
        (("llama-3.1-8b", *H100, "--ctx", "-1"), 2, "-1"),
        (("llama-3.1-8b", *H100, "--weight-bytes", "-2"), 2, "-2"),
        (("llama-3.1-8b", *H100, "--bandwidth", "0"), 2, "0"),
        (("llama-3.1-8b", *H100, "--peak-flops", "nan"), 2, "nan"),
        (("llama-3.1-8b", *H100, "--memory", "-1"), 2, "memory"),
        (("llama-3.1-8b", *H100, "--draft", "qwen3-0.6b", "--acceptance", "2"), 2, "0 … 1"),
        (("llama-3.1-8b", *H100, "--draft", "qwen3-0.6b", "--acceptance", "x"), 2, "x"),
        (("llama-3.1-8b", *H100, "--draft", "qwen3-0.6b", "--k", "0"), 2, "--k"),
        (("llama-3.1-8b", *H100, "--draft", "qwen3-0.6b", "--k", "-3"), 2, "--k"),
        (("llama-3.1-8b", *H100, "--draft", "qwen3-0.6b", "--k", "65"), 2, "--k"),
        (("no-such-model", *H100), 2, "no-such-model"),
        (("llama-3.1-8b", *H100, "--plot", "roof.bmp"), 2, ".svg"),
    ],
)
def test_bad_input_is_one_clear_line(
    run: Run, arguments: tuple[str, ...], code: int, words: str
) -> None:
    found, out, err = run(*arguments)
    assert found == code
    assert out == ""
    assert err.startswith("cpubound: error: ")
    assert err.count("\n") == 1
    assert words in err
