"""A log of any program to the runs it tells of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from cpubound import bounds
from cpubound.advise.logs import (
    batched_bench,
    koboldcpp,
    llama_bench,
    llama_cpp,
    llama_server,
    lm_studio,
    localscore,
    ollama,
    text_generation_webui,
)
from cpubound.advise.logs.run import LoggedRun
from cpubound.advise.logs.text import Log, LongLog, json_objects
from cpubound.engine.bench_rows import read_printed_file
from cpubound.errors import InputError

Reader = Callable[[Log], tuple[LoggedRun, ...]]

_ANSWERS = (
    llama_server.read_answer,
    lm_studio.read_answer,
    ollama.read_answer,
    koboldcpp.read_answer,
)


def read_log_file(path: Path) -> tuple[LoggedRun, ...]:
    """Find every decode in a file; raises as ``read_log``, or if the file cannot be read.

    Of a file beyond ``bounds.PRINTED_BYTES`` the runs are found that a program printed line by
    line: it is never in memory as a whole.
    """
    n_bytes = path.stat().st_size if path.is_file() else 0
    if n_bytes > bounds.LOG_BYTES:
        raise InputError(
            f"the log is too large ({path}, over {bounds.LOG_BYTES // 2**30} GiB): "
            "cut out the runs that you mean"
        )
    if n_bytes > bounds.PRINTED_BYTES:
        return _read(LongLog(path), f"{path}, too large to be read as JSON or llama-bench's rows,")
    return read_log(read_printed_file(path, "the log"), str(path))


def read_log(text: str, name: str = "the log") -> tuple[LoggedRun, ...]:
    """Find every decode in what a program printed, in its order.

    Raises
    ------
    InputError : nothing is in it that says how fast tokens were generated.
    """
    return _read(Log(text), name)


def _read(log: Log, name: str) -> tuple[LoggedRun, ...]:
    for readers in _READERS:
        runs = tuple(run for read in readers for run in read(log))
        if runs:
            return runs
    raise InputError(
        f"{name} does not say how fast tokens were generated: give what llama-cli, llama-server, "
        "llama-bench, ollama run --verbose, LM Studio or KoboldCpp printed, or the rate itself "
        "with --observed"
    )


def _read_answers(log: Log) -> tuple[LoggedRun, ...]:
    """Read what servers put into their JSON answers, one or many."""
    found = []
    for answer in json_objects(log):
        run = next((run for read in _ANSWERS if (run := read(answer)) is not None), None)
        model = answer.get("model")
        if run is not None:
            found.append(replace(run, model=model) if isinstance(model, str) else run)
    return tuple(found)


# Programs that measure, and KoboldCpp, print llama.cpp's own times beside theirs, which hold a
# warm-up or all tests together; answers and other programs repeat what llama.cpp's lines said.
_READERS: tuple[tuple[Reader, ...], ...] = (
    (
        llama_bench.read,
        llama_bench.read_comparison,
        batched_bench.read,
        localscore.read,
        koboldcpp.read,
    ),
    (llama_cpp.read, ollama.read),
    (_read_answers,),
    (text_generation_webui.read,),
    (lm_studio.read,),
)
