# ruff: noqa: E501
"""What engines print, as they print it, and what people make of it on the way."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cpubound.advise.logs import LoggedRun, choose_run, read_log, read_log_file, require_cpu
from cpubound.errors import InputError, UsageError

LOADER = """\
llama_model_loader: loaded meta data with 33 key-value pairs and 272 tensors from /m/Smol.Q4_1.gguf (version GGUF V3 (latest))
print_info: file size   = 92.10 MiB (5.74 BPW)
print_info: n_ctx_train           = 8192
print_info: model params          = 134.52 M
llama_context: n_ctx                 = 2048
llama_context: n_ctx_seq             = 512
llama_context: flash_attn            = disabled
llama_kv_cache: size =   11.25 MiB (   512 cells,  30 layers,  1/1 seqs), K (q8_0):    5.62 MiB, V (f16):    5.62 MiB
system_info: n_threads = 6 (n_threads_batch = 8) / 16 | CPU : SSE3 = 1 | AVX2 = 1 | AVX512 = 0 | OPENMP = 1 |
"""
CLI = f"""{LOADER}
llama_perf_context_print:        load time =     123.45 ms
llama_perf_context_print: prompt eval time =     297.18 ms /   100 tokens (    2.97 ms per token,   336.50 tokens per second)
llama_perf_context_print:        eval time =    2000.00 ms /    40 runs   (   50.00 ms per token,    20.00 tokens per second)
llama_perf_context_print:       total time =    2300.00 ms /   140 tokens
"""
# Before 2024.
OLD = """\
llm_load_print_meta: model params     = 6.74 B
llm_load_print_meta: model size       = 3.56 GiB (4.54 BPW)
llama_print_timings: prompt eval time =    1000.00 ms /    10 tokens (  100.00 ms per token,    10.00 tokens per second)
llama_print_timings:        eval time =    5063.03 ms /   127 runs   (   39.87 ms per token,    25.08 tokens per second)
"""
SERVER = """\
srv    load_model: loading model '/m/Qwen3-4B-Q4_K_M.gguf'
slot print_timing: id  0 | task 0 | prompt eval time =     500.00 ms /    20 tokens (   25.00 ms per token,    40.00 tokens per second)
slot print_timing: id  0 | task 0 |        eval time =    4000.00 ms /    64 tokens (   62.50 ms per token,    16.00 tokens per second)
slot print_timing: id  0 | task 9 | prompt eval time =     600.00 ms /    24 tokens (   25.00 ms per token,    40.00 tokens per second)
slot print_timing: id  0 | task 9 |        eval time =    4400.00 ms /    64 tokens (   68.75 ms per token,    14.55 tokens per second)
"""
DRAFT = """\
slot print_timing: id  0 | task 0 |        eval time =    4000.00 ms /    64 tokens (   62.50 ms per token,    16.00 tokens per second)
slot print_timing: id  0 | task 0 | draft acceptance = 0.57576 (   57 accepted /    99 generated), mean len =  2.31
"""
NEW_CLI = "> hello\n\n[ Prompt: 101.2 t/s | Generation: 12.5 t/s ]\n"
OLLAMA = """\
total duration:       5.279s
load duration:        1.104s
prompt eval count:    26 token(s)
prompt eval duration: 130.079ms
prompt eval rate:     199.88 tokens/s
eval count:           298 token(s)
eval duration:        4.04s
eval rate:            73.76 tokens/s
"""
GPU = CLI.replace(
    "print_info: file", "load_tensors: offloaded 31/31 layers to GPU\nprint_info: file"
)
BENCH_TABLE = """\
| model                          |       size |     params | backend    | threads |            test |                  t/s |
| ------------------------------ | ---------: | ---------: | ---------- | ------: | --------------: | -------------------: |
| llama 256M Q4_1                |  92.10 MiB |   134.52 M | CPU        |       1 |            pp16 |        163.07 ± 1.64 |
| llama 256M Q4_1                |  92.10 MiB |   134.52 M | CPU        |       2 |   tg16 @ d1024 |        119.82 ± 1.29 |

build: 0c1e57098 (0)
"""
BENCH_ROW = {
    "backends": "CPU",
    "model_filename": "/m/Smol.Q4_1.gguf",
    "model_size": 96576768,
    "model_n_params": 134515008,
    "n_threads": 2,
    "type_k": "q8_0",
    "type_v": "q8_0",
    "n_gpu_layers": -1,
    "flash_attn": True,
    "n_prompt": 0,
    "n_gen": 16,
    "n_depth": 100,
    "avg_ts": 119.5,
    "samples_ts": [120.0, 119.0],
}


def one(text: str) -> LoggedRun:
    (run,) = read_log(text)
    return run


def test_llama_cli_tells_the_run_and_its_settings() -> None:
    assert one(CLI) == LoggedRun(
        engine="llama.cpp",
        tokens_per_s=20.0,
        tokens=40,
        depth_tokens=120,
        n_ctx=512,
        threads=6,
        model="/m/Smol.Q4_1.gguf",
        model_parameters=134_520_000,
        model_bytes=round(92.10 * 2**20),
        kv_types=("q8_0", "f16"),
        flash_attn=False,
        cpus=16,
        features=("SSE3", "AVX2", "OPENMP"),
        asked_features=("SSE3", "AVX2", "AVX512", "OPENMP"),
    )


def test_older_builds_are_read() -> None:
    run = one(OLD)
    assert run.tokens_per_s == pytest.approx(25.08, abs=0.01)
    assert run.model_parameters == 6_740_000_000
    assert run.model_bytes == pytest.approx(3.56 * 2**30)


def test_the_short_line_of_llama_cli_is_enough() -> None:
    assert one(NEW_CLI).tokens_per_s == 12.5


def test_every_request_of_llama_server_is_a_run() -> None:
    runs = read_log(SERVER)
    assert [run.tokens_per_s for run in runs] == [16.0, pytest.approx(14.545, abs=0.001)]
    assert [run.depth_tokens for run in runs] == [52, 56]
    assert {run.model for run in runs} == {"/m/Qwen3-4B-Q4_K_M.gguf"}


def test_an_answer_of_llama_server_is_read() -> None:
    answer = {
        "model": "qwen",
        "timings": {"prompt_n": 12, "predicted_n": 64, "predicted_per_second": 15.5},
    }
    run = one(f"HTTP/1.1 200 OK\n\n{json.dumps(answer)}\n")
    assert (run.tokens_per_s, run.depth_tokens, run.model) == (15.5, 44, "qwen")


def test_ollama_verbose_is_read() -> None:
    run = one(OLLAMA)
    assert (run.engine, run.tokens) == ("ollama", 298)
    assert run.tokens_per_s == 298 / 4.04
    assert run.depth_tokens == 26 + 149


def test_an_answer_of_ollama_is_in_nanoseconds() -> None:
    answer = (
        '{"model":"llama3.2","prompt_eval_count":26,"eval_count":259,"eval_duration":4232710000}'
    )
    run = one(answer)
    assert run.tokens_per_s == pytest.approx(259 / 4.23271)
    assert run.engine == "ollama"


@pytest.mark.parametrize(
    "text",
    [
        "12.34 tok/sec • 128 tokens • 0.30s to first token • Stop reason: EOS Token Found",
        '{"stats": {"tokens_per_second": 12.34, "time_to_first_token": 0.111}}',
        "Prediction Stats:\n  Stop Reason: eosFound\n  Tokens/Second: 12.34\n",
        '  "tokensPerSecond": 12.34,\n',
    ],
)
def test_lm_studio_is_read(text: str) -> None:
    run = one(text)
    assert (run.engine, run.tokens_per_s) == ("lm-studio", 12.34)


def test_colours_and_prefixes_do_not_hide_a_line() -> None:
    coloured = OLLAMA.replace("73.76", "\x1b[1m73.76\x1b[0m")
    assert one(coloured) == one(OLLAMA)
    stamped = "\n".join(f"2026-11-30T08:00:00Z host llama[1]: {line}" for line in CLI.splitlines())
    assert one(stamped) == one(CLI)


def test_a_table_of_llama_bench_is_read() -> None:
    run = one(BENCH_TABLE)
    assert (run.engine, run.tokens_per_s, run.threads) == ("llama-bench", 119.82, 2)
    assert run.depth_tokens == 1024 + 8
    assert run.model_bytes == pytest.approx(92.10 * 2**20, rel=1e-4)


@pytest.mark.parametrize("form", ["json", "jsonl", "csv"])
def test_files_of_llama_bench_are_read(form: str) -> None:
    if form == "csv":
        row = {k: v for k, v in BENCH_ROW.items() if k != "samples_ts"}
        text = ",".join(row) + "\n" + ",".join(f'"{v}"' for v in row.values()) + "\n"
    else:
        text = json.dumps([BENCH_ROW] if form == "json" else BENCH_ROW)
    run = one(text)
    assert run.tokens_per_s == 119.5
    assert (run.threads, run.kv_types, run.flash_attn) == (2, ("q8_0", "q8_0"), True)
    assert run.depth_tokens == 108
    assert run.gpu is None
    assert run.samples_tokens_per_s == (() if form == "csv" else (120.0, 119.0))


def test_prompt_rows_of_llama_bench_are_no_generation() -> None:
    with pytest.raises(InputError, match="times generation"):
        read_log(json.dumps([{**BENCH_ROW, "n_prompt": 512, "n_gen": 0}]))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello\nworld",
        "\x00\x01\x02",
        "{" * 5000,
        "[1, 2, 3]",
        '{"eval_count": 5}',
        "prompt eval time = 10.0 ms / 5 tokens",
        "eval time = 0.00 ms / 1 runs ( 0.00 ms per token, inf tokens per second)",
        "eval time = nan ms / nan runs",
        "prompt eval rate:     199.88 tokens/s",
        "eval rate:            0.00 tokens/s",
    ],
)
def test_a_log_without_a_run_is_one_clear_line(text: str) -> None:
    with pytest.raises(InputError) as caught:
        read_log(text)
    assert "does not say how fast" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_several_runs_ask_for_a_number() -> None:
    runs = read_log(SERVER)
    with pytest.raises(
        UsageError,
        match=re.escape("holds 2 runs (1: 16 tok/s, Qwen3-4B-Q4_K_M.gguf, depth 52; 2: "),
    ):
        choose_run(runs)
    assert choose_run(runs, 2) is runs[1]
    with pytest.raises(UsageError, match="not a run 3"):
        choose_run(runs, 3)


def test_many_runs_are_not_all_listed() -> None:
    with pytest.raises(UsageError) as caught:
        choose_run(read_log(SERVER * 50))
    assert "and 92 more" in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_run_with_a_draft_model_is_refused() -> None:
    with pytest.raises(UsageError, match="draft model"):
        choose_run(read_log(DRAFT))


def test_a_run_on_a_gpu_is_refused_for_a_cpu() -> None:
    run = choose_run(read_log(GPU))
    assert run.gpu == "31 layers offloaded"
    with pytest.raises(UsageError, match=r"on a GPU.*-ngl 0.*--machine"):
        require_cpu(run)
    bench = one(json.dumps({**BENCH_ROW, "backends": "CUDA", "n_gpu_layers": 99}))
    with pytest.raises(UsageError, match="CUDA"):
        require_cpu(bench)
    none = one(GPU.replace("31/31", "0/31"))
    assert require_cpu(none) is none


def test_files_are_read_as_shells_write_them(tmp_path: Path) -> None:
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        path = tmp_path / encoding
        path.write_text(OLLAMA, encoding=encoding)
        assert read_log_file(path) == read_log(OLLAMA)
    path = tmp_path / "crlf"
    path.write_bytes(CLI.replace("\n", "\r\n").encode())
    assert read_log_file(path) == read_log(CLI)


def test_a_file_that_cannot_be_read_is_one_clear_line(tmp_path: Path) -> None:
    for path, what in ((tmp_path, "not a file"), (tmp_path / "none", "no such file")):
        with pytest.raises(InputError, match=what):
            read_log_file(path)


def test_a_log_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cpubound.bounds.PRINTED_BYTES", 10)
    path = tmp_path / "log"
    path.write_text("nothing of any program")
    with pytest.raises(InputError, match="too large"):
        read_log_file(path)
    monkeypatch.setattr("cpubound.bounds.LOG_BYTES", 20)
    path.write_text(OLLAMA)
    with pytest.raises(InputError, match="too large"):
        read_log_file(path)


def test_a_log_too_long_for_memory_is_read_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cpubound.bounds.PRINTED_BYTES", 10)
    path = tmp_path / "log"
    for text in (CLI, SERVER, OLLAMA, NEW_CLI):
        path.write_text(f"{'x' * 5000}\n{text}{'y' * 5000}\n")
        assert read_log_file(path) == read_log(text)


def test_more_runs_than_anybody_means_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cpubound.bounds.ROWS", 3)
    for text in (SERVER, OLLAMA * 2):
        with pytest.raises(InputError, match="more than 3 runs"):
            read_log(text * 2)
