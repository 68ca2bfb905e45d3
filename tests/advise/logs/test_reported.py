"""Logs as people pasted them, on which readers failed: the right value of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from cpubound.advise.logs import LoggedRun, choose_run, read_log_file
from cpubound.errors import UsageError

DATA = Path(__file__).parents[2] / "data" / "reported"


def one(name: str) -> LoggedRun:
    return choose_run(read_log_file(DATA / name))


@pytest.mark.parametrize("name", ["reused-prompt.json", "reused-prompt.log"])
def test_the_depth_of_a_reused_prompt_is_what_is_in_the_cache(name: str) -> None:
    run = one(name)
    assert run.depth_tokens in (8261, 8262)
    assert run.tokens_per_s == 5.0


def test_a_draft_in_an_answer_is_a_draft() -> None:
    with pytest.raises(UsageError, match="draft model"):
        one("draft.json")


def test_decimal_commas_are_read() -> None:
    run = one("decimal-comma.txt")
    assert run.tokens_per_s == pytest.approx(380 / 75.6428)
    assert run.depth_tokens == 220


def test_a_rounded_rate_gives_way_to_count_over_duration() -> None:
    run = one("ollama-rounded-rate.txt")
    assert run.tokens_per_s == pytest.approx(64 / (41 * 60 + 38.609))
    assert run.depth_tokens == 19 + 32


def test_feature_lists_of_every_wording_name_what_is_missing() -> None:
    until = one("features-until-2024.txt")
    assert (until.threads, until.cpus, until.features) == (2, 2, ("SSE3",))
    assert {"AVX2", "FMA", "F16C"} <= set(until.asked_features or ())
    since = one("features-from-2024.txt")
    assert (since.threads, since.cpus, since.asked_features) == (2, 2, None)
    assert "AVX2" not in (since.features or ())


def test_koboldcpp_says_the_time_of_a_generated_token() -> None:
    run = one("koboldcpp-2024.txt")
    assert run.tokens_per_s == pytest.approx(1e3 / 245.9)
    assert run.depth_tokens == pytest.approx(1370, abs=2)


def test_rows_of_sweep_bench_are_rates_at_growing_depths() -> None:
    runs = read_log_file(DATA / "sweep-bench.md")
    assert [run.depth_tokens for run in runs] == [64, 576, 1088, 1600, 2112]
    assert runs[0].tokens_per_s == pytest.approx(15.54, abs=0.005)
