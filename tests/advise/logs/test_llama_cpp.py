# ruff: noqa: E501
"""llama.cpp's own lines of each year, as each program that carries it prints them."""

from __future__ import annotations

import pytest

from cpubound.advise.logs import LoggedRun, choose_run, read_log
from cpubound.errors import UsageError

PERF = """\
llama_perf_context_print:        load time =     123.45 ms
llama_perf_context_print: prompt eval time =     297.18 ms /   100 tokens (    2.97 ms per token,   336.50 tokens per second)
llama_perf_context_print:        eval time =    2000.00 ms /    40 runs   (   50.00 ms per token,    20.00 tokens per second)
llama_perf_context_print:       total time =    2300.00 ms /   140 tokens
"""
SAMPLES = {
    "April 2023": """\
llama_print_timings:      sample time =    45.00 ms /    40 runs   (    1.12 ms per run)
llama_print_timings: prompt eval time =  1000.00 ms /   100 tokens (   10.00 ms per token)
llama_print_timings:        eval time =  2000.00 ms /    40 runs   (   50.00 ms per run)
llama_print_timings:       total time =  3100.00 ms
""",
    "October 2023": """\
llama_print_timings: prompt eval time =    1000.00 ms /   100 tokens (   10.00 ms per token,   100.00 tokens per second)
llama_print_timings:        eval time =    2000.00 ms /    40 runs   (   50.00 ms per token,    20.00 tokens per second)
""",
    "September 2024": PERF,
    "llamafile 2024": """\
{"function":"print_timings","level":"INFO","line":317,"msg":"prompt eval time     =    1000.00 ms /   100 tokens (   10.00 ms per token,   100.00 tokens per second)","n_tokens_second":100.0,"slot_id":0,"task_id":0,"tid":"8545344"}
{"function":"print_timings","level":"INFO","line":331,"msg":"generation eval time =    2000.00 ms /    40 runs   (   50.00 ms per token,    20.00 tokens per second)","n_decoded":40,"slot_id":0,"task_id":0,"tid":"8545344"}
""",
    "llama-server April 2024": """\
INFO [           print_timings] prompt eval time     =    1000.00 ms /   100 tokens (   10.00 ms per token,   100.00 tokens per second) | tid="140" timestamp=1714 id_slot=0 id_task=0 n_prompt_tokens_processed=100
INFO [           print_timings] generation eval time =    2000.00 ms /    40 runs   (   50.00 ms per token,    20.00 tokens per second) | tid="140" timestamp=1714 id_slot=0 id_task=0 n_decoded=40
""",
    "ik_llama.cpp's server": """\
slot print_timing: id  0 | task 3 |
prompt eval time =    1000.00 ms /   100 tokens (   10.00 ms per token,   100.00 tokens per second)
       eval time =    2000.00 ms /    40 tokens (   50.00 ms per token,    20.00 tokens per second)
      total time =    3000.00 ms /   140 tokens
""",
    "journald": "".join(
        f"Nov 30 08:00:00 box llama-cli[812]: {line}\n" for line in PERF.splitlines()
    ),
    "docker compose": "".join(f"llama-1  | {line}\n" for line in PERF.splitlines()),
    "docker logs -t": "".join(
        f"2026-11-30T08:00:00.123456789Z {line}\n" for line in PERF.splitlines()
    ),
    "container runtime": "".join(
        f"2026-11-30T08:00:00.1Z stderr F {line}\n" for line in PERF.splitlines()
    ),
    "docker's files": "".join(
        f'{{"log":"{line}\\n","stream":"stderr","time":"2026-11-30T08:00:00Z"}}\n'
        for line in PERF.splitlines()
    ),
    "timestamps of --log-timestamps": "".join(
        f"0.12.345.678 I {line}\n" for line in PERF.splitlines()
    ),
    "colours": PERF.replace("20.00 tokens", "\x1b[1;32m20.00\x1b[0m tokens").replace(
        "eval time", "\x1b[0meval time"
    ),
    "carriage returns": PERF.replace("\n", "\r\n"),
    "quoted in an issue": "".join(f"> {line}\n" for line in PERF.splitlines()),
    "decimal commas": PERF.replace(".", ","),
}


def one(text: str) -> LoggedRun:
    (run,) = read_log(text)
    return run


@pytest.mark.parametrize("program", SAMPLES)
def test_every_wording_and_wrapping_gives_rate_and_depth(program: str) -> None:
    run = one(SAMPLES[program])
    assert run.tokens_per_s == pytest.approx(20.0)
    assert (run.tokens, run.depth_tokens) == (40, 120)


def python(line: str) -> str:
    return f"{line}\n{SAMPLES['October 2023'].replace('100 tokens', ' 21 tokens')}"


def test_llama_cpp_python_says_how_much_of_a_prompt_it_reused() -> None:
    run = one(python("Llama.generate: 8191 prefix-match hit, remaining 21 prompt tokens to eval"))
    assert (run.depth_tokens, run.has_unknown_prefix) == (8212 + 20, False)


@pytest.mark.parametrize(
    "line",
    [
        "Llama.generate: prefix-match hit",
        "Llama.generate: full prompt already cached, skipping reset",
    ],
)
def test_a_reused_prompt_of_unknown_length_leaves_the_depth_unknown(line: str) -> None:
    run = one(python(line))
    assert (run.depth_tokens, run.has_unknown_prefix) == (None, True)
    following = read_log(python(line) + SAMPLES["October 2023"])[1]
    assert (following.depth_tokens, following.has_unknown_prefix) == (120, False)


@pytest.mark.parametrize(
    ("line", "features"),
    [
        (
            "AVX = 1 | AVX_VNNI = 0 | AVX2 = 1 | FMA = 1 | NEON = 0 | F16C = 1 | SSE3 = 1 | VSX = 0 | ",
            ("AVX", "AVX2", "FMA", "F16C", "SSE3"),
        ),
        (
            "system_info: n_threads = 4 / 8 | AVX = 1 | AVX2 = 1 | AVX512 = 0 | FMA = 0 | F16C = 1 | ",
            ("AVX", "AVX2", "F16C"),
        ),
        (
            "system_info: n_threads = 4 (n_threads_batch = 4) / 8 | AVX = 1 | AVX2 = 1 | FMA = 0 | LLAMAFILE = 1 | ",
            ("AVX", "AVX2", "LLAMAFILE"),
        ),
        (
            "system_info: n_threads = 4 (n_threads_batch = 4) / 8 | CUDA : ARCHS = 890 | F16 = 1 | CPU : SSE3 = 1 | AVX2 = 1 | ",
            ("SSE3", "AVX2"),
        ),
        (
            "CPU : NEON = 1 | ARM_FMA = 1 | DOTPROD = 1 | REPACK = 1 | ",
            ("NEON", "ARM_FMA", "DOTPROD", "REPACK"),
        ),
    ],
)
def test_features_of_every_wording_are_read(line: str, features: tuple[str, ...]) -> None:
    assert one(f"{line}\n{PERF}").features == features


def test_a_draft_is_told_by_the_server_and_by_the_example() -> None:
    for line in (
        "draft acceptance rate = 0.57576 (   57 accepted /    99 generated)",
        "n_drafted = 99",
    ):
        with pytest.raises(UsageError, match="draft model"):
            choose_run(read_log(f"{PERF}{line}\n"))
    assert not one(f"{PERF}n_drafted = 0\n").has_draft


@pytest.mark.parametrize(
    "line",
    [
        "eval time = 0.00 ms / 40 runs",
        "eval time = -5.00 ms / 40 runs",
        "eval time = 2000.00 ms / 0 runs",
        "eval time = 2000.00 ms / 40 ru",
        "eval time = 2000.0",
    ],
)
def test_times_that_cannot_be_and_half_lines_are_no_runs(line: str) -> None:
    assert read_log(f"{line}\n{PERF}") == read_log(PERF)


def test_a_log_of_many_runs_names_each_ones_model() -> None:
    text = "".join(f"srv load_model: loading model '/m/{name}.gguf'\n{PERF}" for name in ("a", "b"))
    with pytest.raises(UsageError, match=r"1: 20 tok/s, a\.gguf.*2: 20 tok/s, b\.gguf"):
        choose_run(read_log(text))


def test_other_lines_between_do_not_matter() -> None:
    noise = "<|im_start|>user\nWas kostet das?\n日本語\x00\xff\n{\n" * 50
    assert read_log(noise + PERF + noise) == read_log(PERF)
