# ruff: noqa: E501
"""What llama-server says of the cache behind a run, in its log and its answers."""

from __future__ import annotations

import json

import pytest

from cpubound.advise.logs import read_log
from cpubound.advise.logs.llama_server import ALONGSIDE, UNTOLD

TIMES = """\
prompt eval time =     402.11 ms /    21 tokens (   19.15 ms per token,    52.22 tokens per second)
       eval time =   20000.00 ms /   100 tokens (  200.00 ms per token,     5.00 tokens per second)
"""
SAMPLES = {
    "December 2023": f"""\
slot 0 is processing [task id: 3]
slot 0 : in cache: 8191 tokens | to process: 21 tokens
slot 0 : kv cache rm - [8191, end)

{TIMES}slot 0 released (8312 tokens in cache)
""",
    "May 2024, JSON": """\
{"tid":"1","level":"INFO","function":"update_slots","line":2080,"msg":"kv cache rm [p0, end)","id_slot":0,"id_task":3,"p0":8191}
{"tid":"1","level":"INFO","function":"print_timings","line":313,"msg":"prompt eval time     =     402.11 ms /    21 tokens (   19.15 ms per token,    52.22 tokens per second)","id_slot":0,"id_task":3}
{"tid":"1","level":"INFO","function":"print_timings","line":327,"msg":"generation eval time =   20000.00 ms /   100 runs   (  200.00 ms per token,     5.00 tokens per second)","id_slot":0,"id_task":3}
{"tid":"1","level":"INFO","function":"update_slots","line":1787,"msg":"slot released","id_slot":0,"id_task":3,"n_ctx":16384,"n_past":8311,"truncated":false}
""",
    "May 2024": """\
INFO [            update_slots] kv cache rm [p0, end) | tid="1" timestamp=17 id_slot=0 id_task=3 p0=8191
INFO [           print_timings] prompt eval time     =     402.11 ms /    21 tokens (   19.15 ms per token,    52.22 tokens per second) | tid="1" id_slot=0 id_task=3
INFO [           print_timings] generation eval time =   20000.00 ms /   100 runs   (  200.00 ms per token,     5.00 tokens per second) | tid="1" id_slot=0 id_task=3
INFO [            update_slots] slot released | tid="1" timestamp=17 id_slot=0 id_task=3 n_ctx=16384 n_past=8311 n_system_tokens=0 truncated=false
""",
    "2025": f"""\
slot launch_slot_: id  0 | task 3 | processing task
slot update_slots: id  0 | task 3 | new prompt, n_ctx_slot = 16384, n_keep = 0, n_prompt_tokens = 8212
slot update_slots: id  0 | task 3 | kv cache rm [8191, end)
slot update_slots: id  0 | task 3 | prompt processing progress, n_past = 8212, n_tokens = 21, progress = 0.002557
slot update_slots: id  0 | task 3 | prompt done, n_past = 8212, n_tokens = 21
slot      release: id  0 | task 3 | stop processing: n_past = 8311, truncated = 0
slot print_timing: id  0 | task 3 |
{TIMES}""",
    "only its end": f"""\
slot print_timing: id  0 | task 3 |
{TIMES}slot      release: id  0 | task 3 | stop processing: n_past = 8311, truncated = 0
""",
    "2026": f"""\
slot launch_slot_: id  0 | task 3 | processing task, is_child = 0
slot   operator(): id  0 | task 3 | new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = 8212
slot   operator(): id  0 | task 3 | cached n_tokens = 8191, memory_seq_rm [8191, end)
slot print_timing: id  0 | task 3 | {TIMES.splitlines()[0]}
slot print_timing: id  0 | task 3 | {TIMES.splitlines()[1]}
slot      release: id  0 | task 3 | stop processing: n_tokens = 8311, truncated = 0
""",
}


@pytest.mark.parametrize("year", SAMPLES)
def test_the_depth_is_what_is_in_the_cache(year: str) -> None:
    (run,) = read_log(SAMPLES[year])
    assert run.tokens_per_s == 5.0
    assert run.depth_tokens == pytest.approx(8262, abs=1)
    assert run.notes == ()


def test_without_a_word_on_the_cache_the_run_says_so() -> None:
    (run,) = read_log(f"slot print_timing: id  0 | task 3 |\n{TIMES}")
    assert (run.depth_tokens, run.notes) == (71, (UNTOLD,))


def slot(number: int, line: str) -> str:
    return f"slot print_timing: id  {number} | task {number} | {line}\n"


def test_interleaved_slots_keep_their_own_prompts() -> None:
    text = "".join(
        (
            slot(0, "new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = 1000"),
            slot(1, "new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = 2000"),
            *(slot(1, line) for line in TIMES.splitlines()),
            slot(1, "stop processing: n_tokens = 2099, truncated = 0"),
            *(slot(0, line) for line in TIMES.splitlines()),
            slot(0, "stop processing: n_tokens = 1099, truncated = 0"),
        )
    )
    second, first = read_log(text)
    assert (first.depth_tokens, second.depth_tokens) == (
        pytest.approx(1050, abs=1),
        pytest.approx(2050, abs=1),
    )
    assert first.notes == second.notes == (ALONGSIDE,)


def test_requests_one_after_the_other_are_alone() -> None:
    runs = read_log(SAMPLES["2026"] + SAMPLES["2026"].replace("task 3", "task 9"))
    assert [run.notes for run in runs] == [(), ()]


TIMINGS = {
    "prompt_n": 21,
    "predicted_n": 100,
    "predicted_ms": 20000.0,
    "predicted_per_second": 5.01,
}


@pytest.mark.parametrize(
    ("answer", "depth"),
    [
        ({"usage": {"prompt_tokens": 8212}, "timings": TIMINGS}, 8262),
        ({"timings": {"cache_n": 8191, **TIMINGS}}, 8262),
        ({"timings": {"cache_n": 0, **TIMINGS}}, 71),
        ({"tokens_evaluated": 8212, "tokens_cached": 8311, "timings": TIMINGS}, 8262),
    ],
)
def test_an_answer_tells_the_whole_prompt(answer: dict[str, object], depth: int) -> None:
    (run,) = read_log(json.dumps(answer))
    assert (run.tokens_per_s, run.depth_tokens, run.notes) == (5.0, depth, ())


def test_an_answer_that_tells_new_tokens_only_says_so() -> None:
    (run,) = read_log(json.dumps({"timings": TIMINGS}))
    assert (run.depth_tokens, run.notes) == (71, (UNTOLD,))


def test_answers_that_stream_have_the_times_in_their_last_piece() -> None:
    pieces = [{"choices": [{"delta": {"content": "a"}}]}] * 3
    last = {"choices": [], "usage": {"prompt_tokens": 8212}, "timings": TIMINGS}
    text = "".join(f"data: {json.dumps(piece)}\n\n" for piece in (*pieces, last)) + "data: [DONE]\n"
    (run,) = read_log(text)
    assert run.depth_tokens == 8262


def test_no_draft_is_an_ordinary_run() -> None:
    (run,) = read_log(json.dumps({"timings": {**TIMINGS, "draft_n": 0}}))
    assert not run.has_draft


def test_a_long_answer_is_read_to_its_end() -> None:
    text = json.dumps({"content": "x" * 100_000, "timings": TIMINGS})
    assert read_log(text)[0].tokens_per_s == 5.0
