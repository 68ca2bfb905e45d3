"""What ``tune`` gives back: the recommendation and all it was chosen from."""

from __future__ import annotations

import msgspec

from cpubound.setting import Setting


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One setting that was considered, as predicted."""

    setting: Setting
    tokens_per_s: float
    low: float
    high: float


class Recommendation(msgspec.Struct, frozen=True, kw_only=True):
    """What to set, why, and the commands to paste."""

    setting: Setting
    batch_threads: int
    cpus: tuple[int, ...] | None  # one for each decode thread; None where they are unknown
    cpu_mask: str | None
    batch_cpus: tuple[int, ...] | None = None
    batch_cpu_mask: str | None = None
    pin: bool = False  # whether the commands carry the masks
    repack: bool = True
    load_mode: str = "auto"  # as llama.cpp's --load-mode
    numa: str | None = None  # as --numa; "numactl" binds with the program numactl instead
    environment: dict[str, str] = {}
    n_ctx: int | None = None  # with room for an answer; None: what the program takes by itself
    tokens_per_s: float
    low: float
    high: float
    reasons: tuple[str, ...]
    commands: dict[str, str]


class FileTypeRate(msgspec.Struct, frozen=True, kw_only=True):
    """The model at another file type, at its own best threads."""

    quant_label: str
    file_bytes: int
    threads: int
    tokens_per_s: float
    low: float
    high: float
    fits_in_memory: bool | None


class TargetAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """What meets a wanted rate.

    ``file_type`` is the largest that does at the depth, None if none does. ``context_tokens``
    is the deepest cache at which the model as given still does, None if not even an empty
    one; ``context_limit`` names what ends it: ``rate``, ``training``, ``memory``.
    """

    tokens_per_s: float
    met: bool
    file_type: FileTypeRate | None
    file_types: tuple[FileTypeRate, ...]  # the largest first
    context_tokens: int | None
    context_limit: str | None


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """One setting as it ran: ``names`` says whose it is (``tune``, a program's default, …).

    ``gain`` is the chosen setting's rate over this one's, the median of the ratios within
    each round; ``gain_low`` … ``gain_high`` are the quartiles of those ratios.
    """

    names: tuple[str, ...]
    setting: Setting
    mmap: bool
    predicted_tokens_per_s: float
    tokens_per_s: float
    gain: float
    gain_low: float
    gain_high: float
    runs_s: tuple[tuple[float, ...], ...]  # every token's time, run by run


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """Interleaved real runs around the choice, the fastest first."""

    engine: str
    rounds: int
    rows: tuple[Verified, ...]
    left_out: tuple[str, ...] = ()  # defaults that cannot be run here, with the reason
    warnings: tuple[str, ...] = ()
    commands: dict[str, str] = {}  # of ``faster``; empty where the choice was confirmed

    @property
    def faster(self) -> Verified | None:
        """The fastest of what ran faster than the choice by more than its rounds vary."""
        beyond_spread = (row for row in self.rows if row.gain_high < 0)
        return max(beyond_spread, key=lambda row: row.tokens_per_s, default=None)


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """The recommendation with everything it was chosen from."""

    model: str
    depth_tokens: int = 0
    effective_cpus: int = 1
    recommendation: Recommendation
    table: tuple[Choice, ...]
    defaults: dict[str, Choice]  # what the programs would do by themselves
    target: TargetAdvice | None = None
    verification: Verification | None = None
    assumptions: tuple[str, ...] = ()  # of the recommended setting's prediction
