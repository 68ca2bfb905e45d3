from __future__ import annotations

from functools import partial
from typing import Any

from builders import GB, SMT, build_machine, hybrid_machine, two_nodes

from cpubound.advise.tune.placement import Placement, physical_threads, place
from cpubound.machine.values import Cache, Machine
from cpubound.measuring.threads import placement


def place_on(machine: Machine, threads: int, **changes: Any) -> Placement:
    settings: dict[str, Any] = {"resident_bytes": GB, **changes}
    return place(machine, threads, partial(placement, machine), **settings)


def test_nothing_is_pinned_where_all_cpus_are_used_or_all_are_alike() -> None:
    assert place_on(build_machine(4), 4).pin is False
    assert place_on(build_machine(4), 2).pin is False
    assert place_on(build_machine(8, **SMT), 8).pin is False


def test_threads_are_pinned_to_one_hardware_thread_of_each_core() -> None:
    found = place_on(build_machine(8, **SMT), 4)
    assert found.pin
    assert found.cpus == (0, 1, 2, 3)
    assert found.batch_threads == 4
    assert "second hardware thread" in found.reasons[0]


def test_threads_are_pinned_to_performance_cores_while_prompts_take_all_cores() -> None:
    found = place_on(hybrid_machine(), 2)
    assert found.pin
    assert found.cpus == (0, 2)
    assert found.batch_threads == 6
    assert found.batch_cpus == (0, 2, 4, 5, 6, 7)
    assert "performance cores only" in found.reasons[0]


def test_threads_stay_in_their_cache_group() -> None:
    groups = ((0, 1), (2, 3))
    l3 = Cache(level=3, type="unified", size_bytes=2**25, instances=2, shared_cpus=groups)
    assert place_on(build_machine(4, caches=(l3,)), 2).pin
    one = Cache(level=3, type="unified", size_bytes=2**25, instances=1, shared_cpus=((0, 1, 2, 3),))
    assert not place_on(build_machine(4, caches=(one,)), 2).pin


def test_nothing_is_pinned_where_llama_cpp_cannot() -> None:
    assert not place_on(build_machine(8, operating_system="Darwin", **SMT), 4).pin
    far = tuple(range(600))
    cores = tuple((cpu, cpu + 300) for cpu in range(300))
    machine = build_machine(600, allowed_cpus=far, core_cpus=cores)
    assert not place_on(machine, 300).pin


def test_threads_for_prompts_are_the_allowed_cores_within_the_quota() -> None:
    assert physical_threads(build_machine(8, **SMT)) == 4
    assert physical_threads(build_machine(8, **SMT, effective_cpus=3, quota_cpus=3.5)) == 3
    assert physical_threads(build_machine(8, **SMT, allowed_cpus=(0, 4), effective_cpus=2)) == 1
    assert physical_threads(build_machine(4, core_cpus=())) == 4


def test_a_model_that_one_node_holds_is_bound_to_that_node() -> None:
    found = place_on(two_nodes(), 4)
    assert found.numa == "numactl"
    assert found.repack
    assert any("node 0" in reason for reason in found.reasons)


def test_a_model_larger_than_a_node_is_not_bound_to_it() -> None:
    assert place_on(two_nodes(), 4, resident_bytes=65 * GB, memory_bound=True).numa is None
    assert place_on(two_nodes(None), 4).numa is None


def test_threads_on_two_nodes_touch_their_part_first_without_repacking() -> None:
    found = place_on(two_nodes(), 8)
    assert found.numa == "distribute"
    assert found.repack is False
    assert found.pin is False


def test_one_node_needs_no_memory_policy() -> None:
    assert place_on(build_machine(4), 4).numa is None


def test_a_model_that_takes_most_of_the_memory_is_locked() -> None:
    assert place_on(build_machine(4), 4, resident_bytes=10 * GB).load_mode == "mmap+mlock"
    assert place_on(build_machine(4), 4, resident_bytes=4 * GB).load_mode == "auto"
    assert place_on(build_machine(4), 4, resident_bytes=15 * GB).load_mode == "auto"


def test_huge_pages_are_advised_only_where_they_are_faster_and_given_unasked() -> None:
    def mode(gain: float | None, pages: str, memory_bound: bool) -> str:
        machine = build_machine(4, transparent_huge_pages=pages)
        return place_on(machine, 4, huge_page_gain=gain, memory_bound=memory_bound).load_mode

    assert mode(1.2, "always", True) == "none"
    assert mode(1.02, "always", True) == "auto"
    assert mode(None, "always", True) == "auto"
    assert mode(1.2, "madvise", True) == "auto"
    assert mode(1.2, "always", False) == "auto"


def test_active_waiting_is_advised_on_arm_with_openmp_and_without_a_quota() -> None:
    def environment(**changes: Any) -> dict[str, str]:
        machine = build_machine(4, **{"architecture": "aarch64", **changes})
        return place_on(machine, 4, engine_features=("OPENMP",)).environment

    assert environment() == {"OMP_WAIT_POLICY": "active"}
    assert environment(architecture="x86_64") == {}
    assert environment(quota_cpus=4.0) == {}
    assert environment(on_battery=True) == {}
    assert place_on(build_machine(4, architecture="aarch64"), 4).environment == {}
