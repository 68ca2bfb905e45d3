"""The exception tree: one base, an exit code on each class.

A message names what is wrong, which value, and what to do, in one line. Library code
raises these; only ``cpubound.cli.main`` turns them into an exit code.
"""

from __future__ import annotations

from collections.abc import Mapping


class CpuboundError(Exception):
    """Base of every error that cpubound raises on purpose."""

    exit_code = 1


class CheckFailed(CpuboundError):
    """A check that the user asked for did not hold."""

    exit_code = 1


class UsageError(CpuboundError):
    """An argument is wrong or two of them contradict each other."""

    exit_code = 2


class InputError(CpuboundError):
    """A file given as input is missing, broken, or of another kind."""

    exit_code = 3


class ModelFileError(InputError):
    """A model file (or a shard of it) cannot be used.

    ``code`` is that of the finding (docs/findings) where its cause has one, with the numbers
    of ``evidence``.
    """

    def __init__(
        self,
        message: str = "",
        *,
        code: str | None = None,
        evidence: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.evidence = dict(evidence or {})


class ProfileError(InputError):
    """A saved profile cannot be used."""


class MachineError(CpuboundError):
    """This machine cannot do what was asked (memory, ISA, missing engine)."""

    exit_code = 4


class KernelsUnavailable(MachineError):
    """The native kernels were not built."""


class IsaUnavailable(MachineError):
    """An instruction set was asked for that this machine does not have."""


class EngineUnavailable(MachineError):
    """llama.cpp cannot be found or imported."""


class EngineCrashed(MachineError):
    """llama.cpp ended inside a run (assertion, signal, out of memory)."""
