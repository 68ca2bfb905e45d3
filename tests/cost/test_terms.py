"""cpubound.cost.terms: what binds a step."""

from __future__ import annotations

import pytest

from cpubound.cost.terms import Part, name_bound

SMALL = Part(seconds=0.1)


@pytest.mark.parametrize("otherwise", ["kernel", "compute"])
def test_weights_wait_for_memory_or_for_what_else_the_step_waits_for(otherwise: str) -> None:
    for memory_s, bound in ((0.6, "memory"), (0.4, otherwise)):
        weights = Part(seconds=1.0, memory_seconds=memory_s)
        assert name_bound(weights, SMALL, SMALL, otherwise=otherwise) == bound


def test_the_largest_part_binds() -> None:
    large = Part(seconds=1.0, memory_seconds=1.0)
    assert name_bound(SMALL, large, SMALL, otherwise="kernel") == "attention"
    assert name_bound(SMALL, SMALL, large, otherwise="kernel") == "overhead"
