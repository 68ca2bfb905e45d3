from __future__ import annotations

import ast
import shlex
from typing import Any

import pytest
from builders import SMT, build_machine, hybrid_machine, take_setting, two_nodes

from cpubound.advise.tune.commands import commands, context_for
from cpubound.advise.tune.values import Recommendation
from cpubound.machine.values import Machine, format_cpu_mask
from cpubound.measuring.threads import placement

# The options that commands may carry, as the programs read them: common/arg.cpp and
# tools/llama-bench/llama-bench.cpp of llama.cpp 0c1e57098bba. True: takes a value.
SERVER = {
    "-m": True, "-t": True, "-tb": True, "-fa": True, "-ctk": True, "-ctv": True, "-c": True,
    "-C": True, "--cpu-strict": True, "-Cb": True, "--cpu-strict-batch": True,
    "--no-repack": False, "-lm": True, "--numa": True,
}  # fmt: skip
BENCH = {
    "-m": True, "-t": True, "-fa": True, "-ctk": True, "-ctv": True, "-d": True, "-C": True,
    "--cpu-strict": True, "--repack": True, "-lm": True, "--numa": True,
}  # fmt: skip


def recommend(machine: Machine, threads: int, batch: int, **changes: Any) -> Recommendation:
    cpus, batch_cpus = (placement(machine, count) for count in (threads, batch))
    setting, rest = take_setting({"threads": threads, **changes})
    fields: dict[str, Any] = {
        "setting": setting,
        "batch_threads": batch,
        "cpus": cpus,
        "cpu_mask": format_cpu_mask(cpus or ()),
        "batch_cpus": batch_cpus,
        "batch_cpu_mask": format_cpu_mask(batch_cpus or ()),
        "tokens_per_s": 10.0,
        "low": 9.0,
        "high": 11.0,
        "reasons": (),
        "commands": {},
    }
    return Recommendation(**{**fields, **rest})


def options_of(command: str, program: str, known: dict[str, bool]) -> dict[str, str]:
    """Take a command apart; fails on an option that the program does not have."""
    words = shlex.split(command)
    words = words[words.index(program) + 1 :]
    found = {}
    while words:
        option = words.pop(0)
        assert option in known, f"{program} has no {option}"
        found[option] = words.pop(0) if known[option] else ""
    return found


EVERYTHING = {
    "pin": True,
    "kv_type_k": "q8_0",
    "kv_type_v": "q4_0",
    "repack": False,
    "load_mode": "mmap+mlock",
    "numa": "distribute",
    "n_ctx": 10240,
}


def test_no_command_has_an_option_that_its_program_lacks() -> None:
    machine = build_machine(8, **SMT)
    lines = commands("model.gguf", recommend(machine, 4, 4, **EVERYTHING), machine, 8192)
    for program in ("llama-server", "llama-cli"):
        assert set(options_of(lines[program], program, SERVER)) == set(SERVER)
    assert set(options_of(lines["llama-bench"], "llama-bench", BENCH)) == set(BENCH)


def test_a_pinned_command_carries_the_mask_of_prompts_too() -> None:
    machine = hybrid_machine()
    lines = commands("model.gguf", recommend(machine, 2, 6, pin=True), machine)
    options = options_of(lines["llama-server"], "llama-server", SERVER)
    assert options["-C"] == "0x5"
    assert options["-Cb"] == "0xf5"
    assert options["--cpu-strict"] == options["--cpu-strict-batch"] == "1"
    assert "-Cb" not in lines["llama-bench"]


def test_python_pins_its_process_before_loading() -> None:
    machine = hybrid_machine()
    lines = commands("model.gguf", recommend(machine, 2, 6, pin=True), machine)
    before, call = lines["llama-cpp-python"].rsplit("; ", 1)
    assert before == "import os; os.sched_setaffinity(0, {0, 2})"
    # The process's CPUs are decode's: prompts get no more threads than those.
    assert "n_threads_batch=2" in call


def test_the_python_line_is_python_with_parameters_that_the_binding_has() -> None:
    machine = build_machine(8, **SMT)
    line = commands("a'b.gguf", recommend(machine, 4, 4, **EVERYTHING), machine)["llama-cpp-python"]
    call = ast.parse(line).body[-1]
    assert isinstance(call, ast.Expr) and isinstance(call.value, ast.Call)
    given = {k.arg: ast.literal_eval(k.value) for k in call.value.keywords}
    assert given == {
        "n_ctx": 10240,
        "n_threads": 4,
        "n_threads_batch": 4,
        "flash_attn": True,
        "type_k": 8,  # GGML_TYPE_Q8_0
        "type_v": 2,  # GGML_TYPE_Q4_0
        "use_mlock": True,
        "numa": True,
    }


@pytest.mark.engine
def test_the_binding_has_every_parameter_of_the_python_line() -> None:
    import inspect

    from llama_cpp import Llama

    assert set(inspect.signature(Llama).parameters) >= {
        "n_ctx", "n_threads", "n_threads_batch", "flash_attn", "type_k", "type_v", "use_mlock",
        "use_mmap", "numa",
    }  # fmt: skip


def test_a_model_on_one_node_is_started_by_numactl() -> None:
    machine = two_nodes()
    lines = commands("m.gguf", recommend(machine, 4, 8, pin=True, numa="numactl"), machine)
    assert lines["llama-server"].startswith("numactl --cpunodebind=0 --membind=0 llama-server ")
    assert "--numa" not in options_of(lines["llama-server"], "llama-server", SERVER)


def test_a_path_with_spaces_stays_one_word() -> None:
    machine = build_machine(2)
    lines = commands("my models/a.gguf", recommend(machine, 2, 2), machine)
    options = options_of(lines["llama-server"], "llama-server", SERVER)
    assert options["-m"] == "my models/a.gguf"


def test_ollama_takes_threads_and_context_in_the_modelfile_and_the_rest_by_environment() -> None:
    machine = build_machine(2)
    r = recommend(machine, 2, 2, n_ctx=10240, load_mode="none", flash_attn=False)
    lines = commands("m.gguf", r, machine)
    assert lines["ollama"].split("\n") == [
        "PARAMETER num_thread 2",
        "PARAMETER num_ctx 10240",
        "PARAMETER use_mmap false",
    ]
    assert lines["ollama serve"] == "OLLAMA_FLASH_ATTENTION=0 ollama serve"
    q8 = recommend(machine, 2, 2, kv_type_k="q8_0", kv_type_v="q8_0")
    served = commands("m.gguf", q8, machine)["ollama serve"]
    assert served == "OLLAMA_FLASH_ATTENTION=1 OLLAMA_KV_CACHE_TYPE=q8_0 ollama serve"


def test_the_environment_stands_before_the_program() -> None:
    machine = build_machine(2)
    r = recommend(machine, 2, 2, environment={"OMP_WAIT_POLICY": "active"})
    lines = commands("m.gguf", r, machine)
    assert lines["llama-cli"].startswith("OMP_WAIT_POLICY=active llama-cli ")
    assert "OMP_WAIT_POLICY=active ollama serve" in lines["ollama serve"]


def test_a_context_has_room_for_an_answer_within_the_training() -> None:
    assert context_for(0, 4096) is None
    assert context_for(8192, None) == 10240
    assert context_for(8192, 8192) == 8192
    assert context_for(9000, 8192) == 9000


def test_ollama_is_pinned_by_taskset() -> None:
    machine = hybrid_machine()
    lines = commands("m.gguf", recommend(machine, 2, 6, pin=True), machine)
    assert lines["ollama serve"] == "OLLAMA_FLASH_ATTENTION=1 taskset -c 0,2 ollama serve"
