# ruff: noqa: E501
"""What text-generation-webui prints."""

from __future__ import annotations

import pytest

from cpubound.advise.logs import read_log
from cpubound.advise.logs.text_generation_webui import WITH_PROMPT

SAMPLES = {
    "March 2023": ("Output generated in 8.50 seconds (5.88 tokens/s, 50 tokens)", None),
    "April 2023": (
        "Output generated in 8.50 seconds (5.88 tokens/s, 50 tokens, context 1024)",
        1049,
    ),
    "2024": (
        "Output generated in 8.50 seconds (5.88 tokens/s, 50 tokens, context 1024, seed 7)",
        1049,
    ),
    "2025": (
        "12:15:01-123456 INFO     Output generated in 8.50 seconds (5.88 tokens/s, 50 tokens, context 1024, seed 7)",
        1049,
    ),
}


@pytest.mark.parametrize("year", SAMPLES)
def test_every_form_gives_rate_and_depth_and_says_what_the_time_holds(year: str) -> None:
    text, depth = SAMPLES[year]
    (run,) = read_log(text)
    assert run.engine == "text-generation-webui"
    assert run.tokens_per_s == pytest.approx(50 / 8.5)
    assert run.depth_tokens == depth
    assert run.notes == (WITH_PROMPT,)


def test_llama_cpps_own_lines_are_taken_instead() -> None:
    own = "eval time =    8000.00 ms /    50 runs   (  160.00 ms per token,     6.25 tokens per second)\n"
    (run,) = read_log(own + SAMPLES["2024"][0])
    assert (run.engine, run.tokens_per_s) == ("llama.cpp", 6.25)
