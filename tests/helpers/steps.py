"""How many steps a call takes: what tests assert in place of seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_steps(call: Callable[[], object]) -> int:
    """Return how many lines of Python ran; an error of the call is part of its work."""
    steps = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal steps
        steps += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Exception:  # what it raises, its own tests assert
        pass
    finally:
        sys.settrace(before)
    return steps


def assert_linear(make: Callable[[int], Callable[[], object]], small: int = 200) -> None:
    """Assert that four times the input takes no more than some four times the steps."""
    few, many = count_steps(make(small)), count_steps(make(4 * small))
    assert many < 5 * few + 2000, (few, many)
