"""What LM Studio shows, prints and answers."""

from __future__ import annotations

import json

import pytest

from cpubound.advise.logs import choose_run, read_log
from cpubound.errors import UsageError

CLI = """\
Prediction Stats:
  Stop Reason: eosFound
  Tokens/Second: 12.34
  Time to First Token: 0.310s
  Prompt Tokens: 40
  Predicted Tokens: 128
  Total Tokens: 168
"""
VERSION_0 = {
    "model": "granite-3.0-2b-instruct",
    "usage": {"prompt_tokens": 24, "completion_tokens": 53, "total_tokens": 77},
    "stats": {
        "tokens_per_second": 51.43709529007664,
        "time_to_first_token": 0.111,
        "generation_time": 0.954,
        "stop_reason": "eosFound",
    },
}
VERSION_1 = {
    "model_instance_id": "openai/gpt-oss-20b",
    "stats": {
        "input_tokens": 329,
        "total_output_tokens": 268,
        "tokens_per_second": 43.73263766917279,
        "time_to_first_token_seconds": 0.781,
    },
}


def test_the_line_under_an_answer_has_rate_and_count() -> None:
    (run,) = read_log("12,34 tok/sec • 128 tokens • 0,30s to first token • Stop: EOS")
    assert (run.engine, run.tokens_per_s, run.tokens) == ("lm-studio", 12.34, 128)


def test_the_command_line_tells_the_prompt_too() -> None:
    (run,) = read_log(CLI)
    assert (run.tokens_per_s, run.tokens, run.depth_tokens) == (12.34, 128, 40 + 64)


def test_answers_of_both_versions_tell_the_depth() -> None:
    (old,) = read_log(json.dumps(VERSION_0))
    assert old.tokens_per_s == pytest.approx(53 / 0.954)
    assert old.depth_tokens == 24 + 26
    (new,) = read_log(json.dumps(VERSION_1, indent=2))
    assert new.tokens_per_s == pytest.approx(43.7326, abs=1e-3)
    assert new.depth_tokens == 329 + 134


def test_a_draft_model_is_told_in_the_stats() -> None:
    stats = {**VERSION_0["stats"], "total_draft_tokens_count": 30}  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="draft model"):
        choose_run(read_log(json.dumps({**VERSION_0, "stats": stats})))
