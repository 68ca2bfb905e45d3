"""What Ollama prints and answers."""

from __future__ import annotations

import json

import pytest

from cpubound.advise.logs import read_log

VERBOSE = """\
total duration:       1m5.279512s
load duration:        1.104s
prompt eval count:    26 token(s)
prompt eval duration: 130.079ms
prompt eval rate:     199.88 tokens/s
eval count:           298 token(s)
eval duration:        {duration}
eval rate:            {rate} tokens/s
"""


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [
        ("59.6s", 59.6),
        ("4m9.5s", 249.5),
        ("1h1m1.5s", 3661.5),
        ("980.25ms", 0.98025),
        ("512µs", 512e-6),
        ("512μs", 512e-6),
    ],
)
def test_durations_are_read_as_go_prints_them(duration: str, seconds: float) -> None:
    (run,) = read_log(VERBOSE.format(duration=duration, rate="1.00"))
    assert run.tokens_per_s == pytest.approx(298 / seconds)
    assert run.depth_tokens == 26 + 149


def test_the_rate_alone_is_enough() -> None:
    (run,) = read_log("eval rate:            12.34 tokens/s\n")
    assert (run.tokens_per_s, run.depth_tokens) == (12.34, None)


def test_a_prompt_that_was_all_in_the_cache_has_no_count() -> None:
    text = VERBOSE.format(duration="59.6s", rate="5.00")
    bare = "\n".join(line for line in text.splitlines() if not line.startswith("prompt"))
    (run,) = read_log(bare + "\n")
    assert (run.tokens, run.depth_tokens) == (298, None)


def test_two_answers_are_two_runs() -> None:
    text = VERBOSE.format(duration="59.6s", rate="5.00")
    assert len(read_log(text + ">>> again\n" + text)) == 2


def test_the_last_line_of_a_stream_has_the_times() -> None:
    pieces = [{"model": "llama3.2", "response": "a", "done": False} for _ in range(3)]
    last = {
        "model": "llama3.2",
        "done": True,
        "total_duration": 4648158584,
        "prompt_eval_count": 26,
        "prompt_eval_duration": 130079000,
        "eval_count": 259,
        "eval_duration": 4232710000,
    }
    (run,) = read_log("\n".join(json.dumps(part) for part in (*pieces, last)))
    assert run.tokens_per_s == pytest.approx(259 / 4.23271)
    assert (run.model, run.depth_tokens) == ("llama3.2", 26 + 129)
