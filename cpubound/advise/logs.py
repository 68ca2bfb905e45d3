"""Rates out of what engines print: llama.cpp's programs, llama-bench, Ollama, LM Studio."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from cpubound import bounds
from cpubound.engine.bench_rows import BenchRow, read_bench_rows, read_printed_file
from cpubound.errors import InputError, UsageError
from cpubound.units import format_count

# Objects that cannot be decoded before a text is no longer taken for JSON.
_MAX_BROKEN = 200
_MAX_LOOKED_AT_AGAIN = 2**16  # characters of such an object
# How many runs an error lists.
_LISTED = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggedRun:
    """One decode that a log tells of; what it does not tell is None.

    ``gpu`` names what may have run it elsewhere than on the CPU.
    """

    engine: str  # as ``engines.find_engine`` knows it
    tokens_per_s: float
    samples_tokens_per_s: tuple[float, ...] = ()
    tokens: int | None = None
    depth_tokens: int | None = None  # mean over the run
    n_ctx: int | None = None
    threads: int | None = None
    model: str | None = None
    model_parameters: int | None = None
    model_bytes: int | None = None
    kv_types: tuple[str, str] | None = None  # of K and V
    flash_attn: bool | None = None
    gpu: str | None = None
    has_draft: bool = False
    features: tuple[str, ...] | None = None

    def __str__(self) -> str:
        threads = "" if self.threads is None else f", {format_count(self.threads, 'thread')}"
        depth = "" if not self.depth_tokens else f", depth {self.depth_tokens}"
        return f"{self.tokens_per_s:.4g} tok/s{threads}{depth}"


def read_log_file(path: Path) -> tuple[LoggedRun, ...]:
    """Find every decode in a file; raises as ``read_log``, or if the file cannot be read.

    Of a file beyond ``bounds.PRINTED_BYTES`` the runs are found that a program printed line by
    line: it is never in memory as a whole.
    """
    if path.is_file() and path.stat().st_size > bounds.PRINTED_BYTES:
        return _read_long_log(path)
    return read_log(read_printed_file(path, "the log"), str(path))


def _read_long_log(path: Path) -> tuple[LoggedRun, ...]:
    if path.stat().st_size > bounds.LOG_BYTES:
        raise InputError(
            f"the log is too large ({path}, over {bounds.LOG_BYTES // 2**30} GiB): "
            "cut out the runs that you mean"
        )
    for read in (_read_llama_cpp, _read_ollama):
        with path.open("rb") as file:
            runs = read(_short_lines(file))
        if runs:
            return runs
    raise InputError(
        f"the log is too large ({path}, over {bounds.PRINTED_BYTES // bounds.MIB} MiB) for one "
        "without lines of llama.cpp or Ollama: cut out the runs that you mean"
    )


def _short_lines(file: BinaryIO) -> Iterator[str]:
    """Yield the lines of a file, of each as much as says something."""
    is_start = True
    while piece := file.readline(bounds.LOG_LINE_CHARACTERS):
        if is_start:
            yield _ANSI.sub("", piece.decode("utf-8", "replace"))
        is_start = piece.endswith(b"\n")


def read_log(text: str, name: str = "the log") -> tuple[LoggedRun, ...]:
    """Find every decode in what an engine printed, in its order.

    Raises
    ------
    InputError : nothing is in it that says how fast tokens were generated.
    """
    text = _ANSI.sub("", text)
    if _looks_like_bench(text):
        rows = [row for row in read_bench_rows(text) if row.is_decode]
        if not rows:
            raise InputError(f"no row of {name} times generation (tg): run llama-bench with -n 128")
        return tuple(_bench_run(row) for row in rows)
    lines = text.splitlines()
    runs = _read_llama_cpp(lines) or _read_ollama(lines)
    runs = runs or _read_answers(text) or _read_lm_studio(text)
    if not runs:
        raise InputError(
            f"{name} does not say how fast tokens were generated (no 'eval time', 'eval rate', "
            "'Generation' or 'tok/sec', no llama-bench row): give the output of llama-server, "
            "llama-cli, llama-bench, ollama run --verbose or LM Studio"
        )
    return runs


def choose_run(runs: tuple[LoggedRun, ...], number: int | None = None) -> LoggedRun:
    """Return the one run, or the one of this number (from 1).

    Raises
    ------
    UsageError : several runs and no number, no such number, or a run whose rate is not that
        of one token after the other on the CPU.
    """
    if number is None and len(runs) > 1:
        listed = "; ".join(f"{i}: {run}" for i, run in enumerate(runs[:_LISTED], 1))
        more = f"; and {len(runs) - _LISTED} more" if len(runs) > _LISTED else ""
        raise UsageError(
            f"the log holds {len(runs)} runs ({listed}{more}): choose one with --run N"
        )
    if number is not None and not 1 <= number <= len(runs):
        raise UsageError(f"the log holds {len(runs)} runs, not a run {number}: choose another")
    run = runs[(number or 1) - 1]
    if run.has_draft:
        raise UsageError(
            f"the run used a draft model ({run}): its rate is not that of single steps; "
            "run it without one"
        )
    return run


def require_cpu(run: LoggedRun) -> LoggedRun:
    """Return the run, or raise ``UsageError`` if a GPU had a part in it."""
    if run.gpu is not None:
        raise UsageError(
            f"the run was on a GPU, or partly ({run.gpu}): run it with -ngl 0, or name the GPU "
            "with --machine (h100-sxm, …) to compare the rate with its bandwidth"
        )
    return run


def _looks_like_bench(text: str) -> bool:
    if re.search(r'"(?:avg_ts|samples_ns|samples_ts)"\s*:', text):
        return True
    lines = text.splitlines()
    if any("avg_ts" in line and "n_gen" in line for line in lines):
        return True
    return any(line.count("|") > 3 and "t/s" in line and "test" in line for line in lines)


def _bench_run(row: BenchRow) -> LoggedRun:
    return LoggedRun(
        engine="llama-bench",
        tokens_per_s=row.tokens_per_s,
        samples_tokens_per_s=row.samples_tokens_per_s,
        tokens=row.n_gen,
        depth_tokens=row.mean_depth_tokens,
        threads=row.n_threads,
        model=row.model_filename or row.model_type,
        model_parameters=row.model_parameters,
        model_bytes=row.model_size_bytes,
        kv_types=(row.type_k or "f16", row.type_v or "f16"),
        flash_attn=row.uses_flash_attn,
        gpu=", ".join(row.gpu_backends) or None,
    )


_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# Bounded, so that a file of digits is passed over in one go.
_NUMBER = r"(?<![0-9.])([0-9]{1,12}(?:\.[0-9]{1,9})?)"
# src/llama-context.cpp, common/sampling.cpp, tools/server/server-context.cpp (0c1e57098bba):
# "prompt eval time = 1.00 ms / 5 tokens (…)" and "eval time = … ms / 64 runs (… per second)".
_EVAL = re.compile(
    rf"(?P<prompt>prompt )?eval time\s*=\s*{_NUMBER}\s*ms\s*/\s*(\d{{1,9}})\s*(?:runs?|tokens?)"
)
# tools/cli/cli-context.cpp (0c1e57098bba): "[ Prompt: 12.3 t/s | Generation: 4.5 t/s ]".
_GENERATION = re.compile(rf"Prompt: {_NUMBER} t/s \| Generation: {_NUMBER} t/s")
_OFFLOADED = re.compile(r"offloaded (\d+)/\d+ layers to GPU")
_MODEL = re.compile(r"loading model '([^']+)'|loaded meta data .* from (\S.*?) \(version")
_PARAMETERS = re.compile(rf"model params\s*=\s*{_NUMBER}\s*([KMBT])\b")
_SIZE = re.compile(rf"(?:file|model) size\s*=\s*{_NUMBER}\s*([MG])iB")
_THREADS = re.compile(r"\bn_threads\s*=\s*(\d{1,6})\b")
_N_CTX = re.compile(r"\bn_ctx(?:_slot|_seq)?\s*=\s*(\d{1,9})\b")
_FLASH = re.compile(r"\bflash_attn\s*=\s*(\w+)")
_KV_TYPES = re.compile(r"\bK \((\w+)\):.*?V \((\w+)\):")
# llama.cpp prints it behind "system_info: n_threads = 4 … |", llama-cpp-python alone.
_SYSTEM_INFO = re.compile(r"\bCPU : [A-Z].*")
_FEATURE = re.compile(r"([A-Z][A-Z0-9_]+) = (\d+)")
_DRAFT = re.compile(r"draft acceptance(?: rate)?\s*=")
_TELLS = re.compile(
    r"eval time|Generation:|offloaded|load(?:ing model|ed meta)|model params|(?:file|model) size"
    r"|n_(?:threads|ctx)|flash_attn|K \(|CPU : |draft acc"
)
_SCALE = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_BINARY = {"M": 2**20, "G": 2**30}


def _read_llama_cpp(lines: Iterable[str]) -> tuple[LoggedRun, ...]:
    """Read llama-server, llama-cli, llama-completion and llama-cpp-python with verbose.

    What is said about model and settings holds for the runs that follow it.
    """
    facts: dict[str, Any] = {}
    found: list[LoggedRun] = []
    prompt_tokens: int | None = None
    for whole in lines:
        # Most of a long log says none of this.
        if not _TELLS.search(whole, 0, bounds.LOG_LINE_CHARACTERS):
            continue
        if len(found) > bounds.ROWS:
            raise InputError(f"the log holds more than {bounds.ROWS} runs: cut out those you mean")
        line = whole[: bounds.LOG_LINE_CHARACTERS]
        _note_facts(line, facts)
        if found and _DRAFT.search(line):
            found[-1] = replace(found[-1], has_draft=True)
        generation = _GENERATION.search(line)
        if generation is not None:
            found += _run(facts, float(generation[2]), None, None)
        timing = _EVAL.search(line)
        if timing is None:
            continue
        milliseconds, tokens = float(timing[2]), int(timing[3])
        if timing["prompt"]:
            prompt_tokens = tokens
            continue
        rate = tokens / milliseconds * 1e3 if milliseconds > 0 else 0.0
        found += _run(facts, rate, tokens, prompt_tokens)
        prompt_tokens = None
    return tuple(found)


def _note_facts(line: str, facts: dict[str, Any]) -> None:
    readers: tuple[tuple[re.Pattern[str], Any], ...] = (
        (_OFFLOADED, lambda m: {"gpu": f"{m[1]} layers offloaded" if int(m[1]) else None}),
        (_MODEL, lambda m: {"model": m[1] or m[2]}),
        (_PARAMETERS, lambda m: {"model_parameters": round(float(m[1]) * _SCALE[m[2]])}),
        (_SIZE, lambda m: {"model_bytes": round(float(m[1]) * _BINARY[m[2]])}),
        (_THREADS, lambda m: {"threads": int(m[1]) or None}),
        (_N_CTX, lambda m: {"n_ctx": int(m[1]) or None}),
        (_FLASH, lambda m: {"flash_attn": m[1].lower() not in ("0", "disabled", "off")}),
        (_KV_TYPES, lambda m: {"kv_types": (m[1], m[2])}),
        (_SYSTEM_INFO, lambda m: {"features": _features(m[0])}),
    )
    for pattern, read in readers:
        match = pattern.search(line)
        if match is not None:
            facts.update(read(match))


def _features(line: str) -> tuple[str, ...] | None:
    pairs = _FEATURE.findall(line)
    return tuple(name for name, value in pairs if value != "0") if pairs else None


def _run(
    facts: Mapping[str, Any], rate: float, tokens: int | None, prompt: int | None
) -> list[LoggedRun]:
    """Return the run, or nothing where no token was generated in a time that shows."""
    if not 0 < rate < math.inf or tokens == 0:
        return []
    depth = None if prompt is None else prompt + (tokens or 0) // 2
    return [
        LoggedRun(engine="llama.cpp", tokens_per_s=rate, tokens=tokens, depth_tokens=depth, **facts)
    ]


# `ollama run --verbose`: "eval count: 298 token(s)", "eval rate: 12.34 tokens/s".
_OLLAMA = re.compile(rf"^[ \t]*(?P<prompt>prompt )?eval (rate|count):[ \t]*{_NUMBER}")


def _read_ollama(lines: Iterable[str]) -> tuple[LoggedRun, ...]:
    found: list[LoggedRun] = []
    counts: dict[bool, int] = {}
    for line in lines:
        match = _OLLAMA.match(line) if "eval" in line else None
        if match is None:
            continue
        is_prompt, what, number = bool(match["prompt"]), match[2], float(match[3])
        if what == "count":
            counts[is_prompt] = int(number)
        elif not is_prompt:
            if number > 0:
                found.append(_counted("ollama", number, counts.get(False), counts.get(True)))
            counts = {}
    return tuple(found)


def _counted(engine: str, rate: float, tokens: int | None, prompt: int | None) -> LoggedRun:
    depth = None if prompt is None else prompt + (tokens or 0) // 2
    return LoggedRun(engine=engine, tokens_per_s=rate, tokens=tokens, depth_tokens=depth)


def _read_answers(text: str) -> tuple[LoggedRun, ...]:
    """Read the timings that servers put into their JSON answers, one or many."""
    found: list[LoggedRun] = []
    for answer in _json_objects(text):
        run = _answer_run(answer)
        if run is not None:
            found.append(run)
    return tuple(found)


def _answer_run(answer: Mapping[str, Any]) -> LoggedRun | None:
    model = answer.get("model") if isinstance(answer.get("model"), str) else None
    # llama-server (tools/server/server-task.cpp): "timings"; LM Studio's API: "stats".
    timings, stats = answer.get("timings"), answer.get("stats")
    if isinstance(timings, dict):
        rate = _positive(timings.get("predicted_per_second"))
        run = rate and _counted(
            "llama.cpp",
            rate,
            _whole(timings.get("predicted_n")),
            _whole(timings.get("prompt_n")),
        )
    elif isinstance(stats, dict):
        rate = _positive(stats.get("tokens_per_second") or stats.get("tokensPerSecond"))
        run = rate and _counted("lm-studio", rate, None, None)
    else:
        # Ollama's API: nanoseconds.
        tokens, duration = _whole(answer.get("eval_count")), _positive(answer.get("eval_duration"))
        prompt = _whole(answer.get("prompt_eval_count"))
        run = tokens and duration and _counted("ollama", tokens / duration * 1e9, tokens, prompt)
    return replace(run, model=model) if run else None


def _json_objects(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield every outermost JSON object in a text, whatever stands between them."""
    decoder, start = json.JSONDecoder(), re.compile(r'\{\s*"')
    found, broken = start.search(text), 0
    while found and broken < _MAX_BROKEN:
        try:
            value, end = decoder.raw_decode(text, found.start())
        except json.JSONDecodeError as error:
            # What lies within a broken object is looked at again, but never the whole text.
            end = max(found.end(), error.pos - _MAX_LOOKED_AT_AGAIN)
            broken += 1
        except (ValueError, RecursionError):
            end, broken = found.end(), broken + 1
        else:
            if isinstance(value, dict):
                yield value
        found = start.search(text, end)


# LM Studio's window: "12.34 tok/sec • 128 tokens • 0.30s to first token"; `lms chat --stats`
# and its log: "Tokens/Second: 12.34", "tokensPerSecond": 12.34.
_LM_STUDIO = re.compile(
    rf"{_NUMBER}\s*tok/s(?:ec)?\b|\"?tokens(?:_per_|Per|/)[sS]econd\"?\s*[:=]\s*{_NUMBER}",
    re.IGNORECASE,
)


def _read_lm_studio(text: str) -> tuple[LoggedRun, ...]:
    rates: Iterable[float] = (float(m[1] or m[2]) for m in _LM_STUDIO.finditer(text))
    return tuple(_counted("lm-studio", rate, None, None) for rate in rates if rate > 0)


def _positive(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 < value < 1e18 else None  # type: ignore[operator,arg-type]


def _whole(value: object) -> int | None:
    number = _positive(value)
    return None if number is None else int(number)
