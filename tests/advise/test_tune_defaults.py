from __future__ import annotations

import msgspec
from builders import SMT, build_machine, hybrid_machine

from cpubound.advise.tune.defaults import llama_cpp_threads, program_defaults


def test_llama_cpp_takes_the_cores_of_the_host_whatever_quota_and_affinity_say() -> None:
    machine = build_machine(8, **SMT, allowed_cpus=(0, 1), effective_cpus=2, quota_cpus=2.0)
    assert llama_cpp_threads(machine) == 4


def test_llama_cpp_counts_performance_cores_of_a_hybrid() -> None:
    assert llama_cpp_threads(hybrid_machine()) == 2


def test_llama_cpp_counts_all_cores_of_a_hybrid_where_it_may_not_pin() -> None:
    machine = msgspec.structs.replace(
        hybrid_machine(), allowed_cpus=(0, 1, 2, 3), physical_cores=6, effective_cpus=4
    )
    assert llama_cpp_threads(machine) == 6


def test_llama_cpp_python_takes_half_the_logical_cpus_without_flash_attention() -> None:
    found = program_defaults(build_machine(8))["llama-cpp-python"]
    assert (found.threads, found.flash_attn) == (4, False)
    assert program_defaults(build_machine(1))["llama-cpp-python"].threads == 1


def test_ollama_does_as_the_server_it_starts() -> None:
    found = program_defaults(build_machine(8, **SMT))
    assert found["Ollama"] == found["llama.cpp"]
    assert found["llama.cpp"].flash_attn is True
