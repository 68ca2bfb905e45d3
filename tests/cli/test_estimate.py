"""``predict --machine`` says what it understood, what it expects and what would narrow it."""

from __future__ import annotations

import json

import pytest

from cpubound.cli import main


def run(capsys, *argv: str) -> tuple[int, str, str]:
    code = main(list(argv))
    out = capsys.readouterr()
    return code, out.out, out.err


def test_a_machine_in_words_gets_an_estimate_without_a_profile(capsys) -> None:
    code, out, _ = run(
        capsys, *("predict", "llama-2-7b:Q4_K_M", "--machine", "epyc 9v45, 16 cores")
    )
    assert code == 0
    assert out.startswith("Understood: EPYC 9V45, Zen 5, threads on 16 cores")
    assert "Basis: estimate" in out and "CC BY-SA" in out and "bandwidth=85GB/s" in out


def test_the_document_holds_machine_estimates_and_basis(capsys) -> None:
    code, out, _ = run(
        capsys,
        *("predict", "llama-2-7b:Q4_K_M", "--machine", "epyc 9v45, 16 cores"),
        *("-t", "4,16", "--json", "-"),
    )
    document = json.loads(out)
    assert code == 0 and document["schema"] == "cpubound.estimates/1"
    four, sixteen = document["estimates"]
    assert (four["threads"], sixteen["threads"]) == (4, 16)
    assert four["basis"] == "estimate"
    assert four["low"] < four["tokens_per_s"] < sixteen["tokens_per_s"] < sixteen["high"]


def test_flash_attention_off_is_told_to_the_estimate(capsys) -> None:
    speeds = []
    for flash in ("on", "off"):
        command = ("predict", "llama-2-7b:Q4_K_M", "--machine", "epyc 9v45, 16 cores")
        _, out, _ = run(
            capsys, *command, "-t", "8", "-d", "8000", "--flash-attn", flash, "--json", "-"
        )
        speeds.append(json.loads(out)["estimates"][0]["tokens_per_s"])
    assert speeds[0] != speeds[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [("epyc-milan", "how many cores"), ("toaster 9000", "toaster")],
)
def test_what_cannot_be_understood_says_what_to_add(capsys, words, message) -> None:
    code, _, err = run(capsys, "predict", "llama-2-7b", "--machine", words)
    assert code == 2 and message in err


@pytest.mark.parametrize("option", [("--local",), ("--batch", "4"), ("--prompt", "512")])
def test_options_that_need_a_profile_are_refused(capsys, option) -> None:
    code, _, err = run(capsys, "predict", "llama-2-7b", "--machine", "epyc 9v45", *option)
    assert code == 2 and "--machine takes a MODEL" in err
