"""cpubound.measuring.buffers: what is held at once follows the memory that is left."""

from __future__ import annotations

import pytest
from builders import GB, build_machine

from cpubound.errors import MachineError
from cpubound.measuring.buffers import ENGINE_BYTES, BufferSizes, available_bytes, model_bytes
from cpubound.units import MIB


def test_what_is_available_is_the_least_of_limit_and_what_is_free() -> None:
    assert available_bytes(build_machine(2, memory_available_bytes=GB)) == GB
    limited = build_machine(2, memory_available_bytes=GB, memory_limit_bytes=256 * MIB)
    assert available_bytes(limited) == 256 * MIB


@pytest.mark.parametrize("limit_mib", [256, 512, 1024])
def test_references_models_and_the_engine_fit_into_a_limit(limit_mib: int) -> None:
    machine = build_machine(4, memory_limit_bytes=limit_mib * MIB)
    sizes = BufferSizes(machine)
    references = len(sizes.kept_ready((1, 2, 3, 4))) * sizes.largest
    open_models = (model_bytes(machine) or 0) // 5
    assert references + open_models + ENGINE_BYTES <= limit_mib * MIB


def test_where_memory_is_plenty_every_thread_count_has_its_reference() -> None:
    machine = build_machine(4, memory_available_bytes=64 * GB, memory_bytes=64 * GB)
    assert BufferSizes(machine).kept_ready((1, 2, 4)) == (1, 2, 4)


def test_where_memory_is_short_the_largest_team_keeps_its_reference() -> None:
    machine = build_machine(4, memory_limit_bytes=256 * MIB)
    assert BufferSizes(machine).kept_ready((1, 2, 4)) == (4,)


def test_too_little_memory_for_the_engine_is_refused_with_the_reason() -> None:
    with pytest.raises(MachineError, match=r"128 MiB of 192 MiB.*--no-engine"):
        model_bytes(build_machine(2, memory_limit_bytes=128 * MIB))


def test_where_the_system_does_not_tell_its_memory_nothing_is_refused() -> None:
    machine = build_machine(
        2, memory_bytes=None, memory_available_bytes=None, memory_limit_bytes=None
    )
    assert model_bytes(machine) is None
