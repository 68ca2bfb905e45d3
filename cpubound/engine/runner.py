"""The face of an engine: everything above it speaks to this protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from cpubound.engine.values import EngineIdentity, Observation, RunSettings


class Runner(Protocol):
    """Decodes model files and times every token.

    A runner is a context manager; it may keep several models open between calls, so that
    short runs of different models can be interleaved without loading them again.
    """

    def identity(self) -> EngineIdentity:
        """Return which engine this is."""
        ...

    def run(self, settings: RunSettings) -> Observation:
        """Decode at a setting and return every token's time.

        Raises
        ------
        EngineCrashed : the engine ended inside the run; the runner stays usable.
        ModelFileError : the engine refuses the file.
        """
        ...

    def close_model(self, model_path: str) -> None:
        """Forget an open model and free its memory; unknown paths are ignored."""
        ...

    def close(self) -> None:
        """End the engine."""
        ...


@runtime_checkable
class TurnTaker(Runner, Protocol):
    """A runner that decodes single tokens of several open models in turn."""

    def rotate(
        self, runs: Sequence[RunSettings], *, passes: int, seed: int
    ) -> tuple[tuple[float, ...], ...]:
        """Return the seconds of one token in each pass for every run; raises as ``run``."""
        ...
