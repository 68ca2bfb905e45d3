"""The llama-cpp-python runner: llama.cpp in a child process of our own."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import msgspec

from cpubound.engine import protocol
from cpubound.engine.child import INSTALL, WORKER_COMMAND, ChildProcess
from cpubound.engine.values import EngineIdentity, GraphCount, Observation, PartTimes, RunSettings
from cpubound.errors import EngineCrashed, EngineUnavailable, UsageError
from cpubound.llama_facts import check_batch
from cpubound.model.values import QuantType

_Reply = TypeVar("_Reply")


class LlamaCppRunner:
    """Decodes through llama-cpp-python in a child process; a ``Runner``.

    Models and contexts stay open between calls. After a crash the next call starts a new
    child. Parameters: the worker's command (tests put their own here); seconds after which
    a silent child is ended, None for never.
    """

    def __init__(
        self, command: Sequence[str] = WORKER_COMMAND, *, timeout_s: float | None = None
    ) -> None:
        self._child = ChildProcess(command, timeout_s=timeout_s)
        self._identity: EngineIdentity | None = None

    def __enter__(self) -> LlamaCppRunner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """Process id of the child, None when none runs."""
        return self._child.pid

    def identity(self) -> EngineIdentity:
        """Return which engine this is; ``EngineUnavailable`` when there is none."""
        if self._identity is None:
            self._identity = self._ask(protocol.Identify(), protocol.Identity).identity
        return self._identity

    def run(self, settings: RunSettings, *, prefill: bool = False) -> Observation:
        """Decode at a setting and return the seconds of every step.

        With ``batch`` sequences a step decodes one token of each. A deep cache is filled
        by repeating the cells of a short prefill where llama.cpp accepts that; ``prefill``
        asks for a real one.

        Raises
        ------
        UsageError : settings that llama.cpp would refuse.
        ModelFileError : llama.cpp refuses the file.
        EngineCrashed : llama.cpp ended inside the run.
        EngineUnavailable : llama-cpp-python is not installed.
        """
        check_settings(settings)
        identity = self.identity()
        request = protocol.Run(settings=_for_the_child(settings), prefill=prefill)
        tokens = self._ask(request, protocol.Tokens)
        return Observation(
            settings=settings,
            engine=identity,
            samples_s=tokens.samples_s,
            load_s=tokens.load_s,
        )

    def rotate(
        self, runs: Sequence[RunSettings], *, passes: int, seed: int
    ) -> tuple[tuple[float, ...], ...]:
        """Decode single tokens of several models in turn; return the seconds of each run's.

        The context of a run must have room for its depth and ``passes`` + 1 tokens; raises as
        ``run``.
        """
        for settings in runs:
            check_settings(settings)
        self.identity()
        request = protocol.Rotate(
            runs=tuple(_for_the_child(settings) for settings in runs), passes=passes, seed=seed
        )
        return self._ask(request, protocol.Rotated).samples_s

    def count_graph(self, settings: RunSettings) -> GraphCount:
        """Count what one decode step at a setting reads; raises as ``run``."""
        check_settings(settings)
        request = protocol.CountGraph(settings=_for_the_child(settings))
        return self._ask(request, protocol.Counted).count

    def time_parts(self, settings: RunSettings, *, by_operator: bool = False) -> PartTimes:
        """Time the parts of every decode step at a setting; raises as ``run``.

        ``by_operator`` looks at every operator instead of once for each part of a layer:
        the same parts, with many more looks in them.
        """
        check_settings(settings)
        request = protocol.TimeParts(settings=_for_the_child(settings), by_operator=by_operator)
        return self._ask(request, protocol.TimedParts).times

    def quantize(self, quant: QuantType, blocks: int, *, scale: float, seed: int) -> bytes:
        """Return random blocks of a type, quantised by ggml; ``scale`` is their deviation."""
        request = protocol.Quantize(
            type_id=quant.id,
            block_size=quant.block_size,
            block_bytes=quant.block_bytes,
            blocks=blocks,
            scale=scale,
            seed=seed,
        )
        return self._ask(request, protocol.Blocks).data

    def close_model(self, model_path: str) -> None:
        """Forget an open model and free its memory; unknown paths are ignored."""
        if self._child.pid is not None:
            request = protocol.CloseModel(model_path=_absolute(model_path))
            self._ask(request, protocol.Done)

    def close(self) -> None:
        """End the child process."""
        self._child.close()

    def _ask(self, request: protocol.Request, expected: type[_Reply]) -> _Reply:
        reply = self._child.ask(request)
        if not isinstance(reply, expected):
            self._child.close()
            raise EngineCrashed(
                f"the engine answered another request ({type(reply).__name__}): run it again"
            )
        return reply


def _for_the_child(settings: RunSettings) -> RunSettings:
    """Name the model for a process that stands in another folder."""
    return msgspec.structs.replace(settings, model_path=_absolute(settings.model_path))


def _absolute(path: str) -> str:
    return str(Path(path).absolute())


def find_runner() -> type[LlamaCppRunner] | None:
    """Return the runner that this Python can use, None without llama-cpp-python."""
    return LlamaCppRunner if importlib.util.find_spec("llama_cpp") else None


def open_runner() -> LlamaCppRunner:
    """Return a runner ready to use; ``EngineUnavailable`` names the line that installs one."""
    runner = find_runner()
    if runner is None:
        raise EngineUnavailable(
            f"llama-cpp-python is not installed (Python {sys.version.split()[0]}): {INSTALL}"
        )
    return runner()


def check_settings(settings: RunSettings) -> None:
    """Refuse with ``UsageError`` what llama.cpp would refuse, or die of."""
    for label, value, least in (
        ("token count", settings.tokens, 1),
        ("prompt", 1 if settings.prompt_tokens is None else settings.prompt_tokens, 1),
    ):
        if value < least:
            raise UsageError(f"{label} out of range ({value}): give at least {least}")
    setting = settings.setting
    check_batch(setting.batch)
    if settings.prompt_tokens is not None and setting.batch > 1:
        raise UsageError(f"a prompt is one sequence (batch {setting.batch}): give batch 1")
    needed = setting.depth_tokens + (settings.prompt_tokens or settings.tokens)
    allocated = setting.allocated_context_tokens
    if allocated is not None and allocated < needed:
        raise UsageError(f"context too small (n_ctx {allocated}): depth and tokens need {needed}")
