"""``cpubound predict --what-if`` from outside."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from builders import GB, build_engine, build_profile

from cpubound.profile.file import save_profile

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invoke: Run) -> Run:
    monkeypatch.setenv("CPUBOUND_HOME", str(tmp_path))
    types = ("Q8_0", "Q6_K", "Q4_K", "Q4_0")
    profile = build_profile(
        {1: 25.0 * GB, 2: 26.0 * GB, 4: 26.0 * GB},
        build_engine(
            {name: {1: 20.0 * GB, 2: 25.0 * GB, 4: 26.0 * GB} for name in types},
            attention={("f16", "f16", True): 5.0 * GB},
        ),
    )
    save_profile(profile, tmp_path / "profile.json")

    return partial(invoke, "predict")


def test_each_change_is_a_row_beside_the_prediction_as_it_is(run: Run) -> None:
    code, out, err = run(
        "llama-3.1-8b:Q8_0", "--threads", "4", "--what-if", "bandwidth=2x", "--what-if",
        "quant=Q4_0", "--format", "csv",
    )  # fmt: skip
    assert (code, err) == (0, "")
    header, faster, smaller = out.splitlines()
    assert header.startswith("what if,of,")
    assert faster.startswith("bandwidth=2x,") and faster.endswith(",memory")
    assert smaller.startswith("quant=Q4_0,")


def test_the_document_holds_the_predictions_and_the_answers(run: Run) -> None:
    code, out, _ = run("llama-3.1-8b:Q8_0", "-t", "1,4", "--what-if", "quant=Q4_0", "--json", "-")
    document = json.loads(out)
    assert code == 0
    assert document["schema"] == "cpubound.predictions/1"
    assert [p["threads"] for p in document["predictions"]] == [1, 4]
    answer = document["what_if"][1]
    assert answer["change"] == "quant=Q4_0"
    assert answer["after"]["tokens_per_s"] == pytest.approx(
        answer["before"]["tokens_per_s"] * (1 + answer["gain"])
    )
    assert answer["gain_low"] < answer["gain"] < answer["gain_high"]


def test_a_catalogue_model_without_a_type_takes_its_usual_one(run: Run) -> None:
    code, out, _ = run("llama-3.1-8b", "--what-if", "threads=1", "--json", "-")
    assert code == 0
    assert [p["quant_label"] for p in json.loads(out)["predictions"]] == ["Q4_K_M"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--fits", "--what-if", "threads=1"), 2, "--what-if needs a MODEL"),
        (("llama-3.1-8b", "--what-if", "speed=2x"), 2, "names are bandwidth"),
        (("llama-3.1-8b", "--what-if", "memory=DDR5-6400x2"), 3, "memory modules"),
    ],
)
def test_what_cannot_be_answered_is_one_clear_line(
    run: Run, arguments: tuple[str, ...], code: int, words: str
) -> None:
    got, out, err = run(*arguments)
    assert (got, out) == (code, "")
    assert err.startswith("cpubound: error: ") and words in err
    assert err.count("\n") == 1
