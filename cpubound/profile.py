"""The machine profile: what calibration found, and the versioned file that keeps it.

Schema history: 1 is the first.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from cpubound import stats
from cpubound.errors import MachineError, ProfileError, UsageError
from cpubound.kernels.values import Measurement
from cpubound.machine.values import Machine
from cpubound.measured import (
    BarrierCost,
    MemoryLevel,
    NodeMeasurement,
    PeakRate,
    PlacedMeasurement,
    WorkingSetPoint,
)

SCHEMA_NAME = "cpubound.profile"
SCHEMA_VERSION = 1
SCHEMA = f"{SCHEMA_NAME}/{SCHEMA_VERSION}"
# A profile of a 1,024-CPU machine with every sample is under 2 MiB.
MAX_FILE_BYTES = 64 * 2**20


# What a file may hold: msgspec refuses the rest while reading, so no arithmetic meets it.
Count = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
Rate = Annotated[float, msgspec.Meta(ge=1.0, le=1e15)]
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e6)]
# Errors and spreads are relative; beyond a factor of ten they say no more than "unknown".
MAX_RELATIVE = 10.0
Relative = Annotated[float, msgspec.Meta(ge=0.0, le=MAX_RELATIVE)]


class SaturationPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest thread count within 3 % of a kernel's best bandwidth.

    ``low`` and ``high`` are its 5 … 95 % range over bootstrap draws. The law (docs/instrument.md)
    that was fitted to the curve has one thread's rate, the limit (None: none shows), the
    sharpness of the turn and its own median relative error.
    """

    kernel: str
    threads: int
    low: int | None = None
    high: int | None = None
    placement: str = "compact"
    thread_bytes_per_s: float | None = None
    limit_bytes_per_s: float | None = None
    sharpness: float | None = None
    law_error: float | None = None


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """How much the machine moved while it was measured.

    ``relative_samples`` are the reference kernel's bandwidths, in order, each over the
    median at its thread count; ``spread`` is half their 5 … 95 % range, ``drift`` their
    second half against their first. ``estimate_moved`` is how far the medians still moved,
    relative, when the last buffer was added, and ``stable`` whether that was little enough.
    What may be to blame was counted meanwhile: ``causes`` says it in words.
    """

    spread: Relative
    verdict: str  # "quiet", "noisy" or "very noisy"
    drift: float = 0.0
    seconds: float = 0.0
    relative_samples: tuple[float, ...] = ()
    stable: bool | None = None
    estimate_moved: float | None = None
    buffer_spread: float | None = None  # of the medians of equal buffers, relative
    steal_fraction: float | None = None  # of the CPU time, given to other machines
    other_cpus: float | None = None  # CPUs that other programs kept busy, on average
    load_average: float | None = None
    throttled_periods: int | None = None  # in which the CPU quota ran out
    throttle_events: int | None = None  # times that heat slowed a core
    frequency_change: float | None = None  # of the mean clock, end over start − 1
    preemptions: int | None = None  # times that one of our threads had to give its CPU up
    page_faults: int | None = None  # within timed samples
    causes: tuple[str, ...] = ()

    @property
    def note(self) -> str | None:
        """What whoever uses the profile must know, or None where the machine was quiet."""
        if self.verdict == "quiet" and self.stable is not False:
            return None
        state = "unsteady" if self.verdict == "quiet" else self.verdict
        blame = f": {'; '.join(self.causes)}" if self.causes else ""
        return f"the machine was {state} while it was measured (±{self.spread * 100:.0f} %{blame})"


# Most models of today have about as many query heads to a KV head.
REFERENCE_QUERY_HEADS = 4.0


class EngineRate(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the engine goes through weights of one type in matrix products.

    The rate depends on the length of a row: short dot products pay for their start and end,
    long ones fall out of the nearest cache. ``columns`` is where the rate was measured.
    ``kind`` is the operator: ``matmul`` (MUL_MAT) or ``experts`` (MUL_MAT_ID).
    """

    type: str
    threads: Count
    columns: Count
    bytes_per_s: Rate
    relative_error: Relative  # standard error of the rate, relative
    kind: str = "matmul"


class BatchRate(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the engine goes through weights of one type that multiply several tokens.

    The bytes of the weights over the time, however many tokens share them.
    """

    type: str
    threads: Count
    tokens: Count
    bytes_per_s: Rate
    relative_error: Relative


class StateRate(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the engine's recurrent operators go through the state: bytes read and written."""

    kind: str  # as ``ModelTraffic.state_kind``
    threads: Count
    bytes_per_s: Rate
    relative_error: Relative


class EngineCost(msgspec.Struct, frozen=True, kw_only=True):
    """Time that does not depend on bytes: per token and per matrix product.

    ``cache_saved_s`` is what the last-level cache keeps from one token to the next, in
    seconds of a token that memory alone sets. ``seconds_per_expert_layer`` is what choosing
    among experts costs a layer.
    """

    threads: Count
    seconds_per_token: Seconds
    seconds_per_product: Seconds
    cache_saved_s: Seconds = 0.0
    seconds_per_expert_layer: Seconds = 0.0
    fast_time_ratio: Annotated[float, msgspec.Meta(ge=0.01, le=1.0)] = (
        1.0  # fast quartile of the tokens' times over their median
    )


class AttentionRate(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the engine's attention goes through the KV cache.

    llama.cpp goes through a KV head once for each of its query heads, so that a part of the
    time, ``query_share``, grows with them; ``bytes_per_s`` is for ``REFERENCE_QUERY_HEADS``.
    """

    kv_type_k: str
    kv_type_v: str
    flash_attn: bool
    head_dim: Count
    threads: Count
    bytes_per_s: Rate
    relative_error: Relative
    query_share: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.0

    def bytes_per_s_at(self, query_heads: float) -> float:
        """Return the rate where ``query_heads`` share a KV head."""
        excess = query_heads / REFERENCE_QUERY_HEADS - 1
        return self.bytes_per_s / (1 + self.query_share * excess)


class PromptAttentionRate(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the engine's attention computes when it processes a prompt.

    2 · heads · (K's + V's head size) operations for each token and each cell it sees.
    """

    kv_type_k: str
    kv_type_v: str
    flash_attn: bool
    head_dim: Count
    threads: Count
    flop_per_s: Rate
    relative_error: Relative


class ProbeRun(msgspec.Struct, frozen=True, kw_only=True):
    """One cell of the engine calibration: what a probe moves and every token's time."""

    probe: str
    type: str
    threads: int
    depth_tokens: int
    kv_type_k: str
    kv_type_v: str
    flash_attn: bool
    matrices: tuple[tuple[str, int, int], ...]  # type, length of a row, bytes
    kv_bytes: int
    products: int
    samples_s: tuple[float, ...]
    reference_bytes_per_s: tuple[float, ...]
    experts: tuple[tuple[str, int, int], ...] = ()  # as ``matrices``
    expert_layers: int = 0
    state_kind: str | None = None
    state_bytes: int = 0
    prompt_tokens: int | None = None  # a sample is then the time of a prompt of so many tokens
    is_batch: bool = False  # its subject is weights that multiply several tokens
    head_dim: int = 0
    query_heads: float = REFERENCE_QUERY_HEADS  # that share a KV head
    attention_operations: int = 0  # of all tokens of a prompt


class EngineCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured through llama.cpp, and through which build of it."""

    name: str
    version: str
    build: str
    features: tuple[str, ...] = ()
    rates: tuple[EngineRate, ...] = ()
    costs: tuple[EngineCost, ...] = ()
    attention: tuple[AttentionRate, ...] = ()
    batch_rates: tuple[BatchRate, ...] = ()
    prompt_attention: tuple[PromptAttentionRate, ...] = ()
    state_rates: tuple[StateRate, ...] = ()
    residual: Relative = 0.0  # median |relative residual| of the fit over its own probes
    noise: float = 0.0  # median relative distance of two halves of one cell's samples
    probes: tuple[ProbeRun, ...] = ()


class MachineProfile(msgspec.Struct, frozen=True, kw_only=True):
    """All that calibration found out about a machine."""

    schema: str = SCHEMA
    machine: Machine
    bandwidth: tuple[Measurement, ...]
    saturation: tuple[SaturationPoint, ...]
    noise: Noise
    placements: tuple[PlacedMeasurement, ...] = ()
    nodes: tuple[NodeMeasurement, ...] = ()
    working_sets: tuple[WorkingSetPoint, ...] = ()
    levels: tuple[MemoryLevel, ...] = ()
    peak: tuple[PeakRate, ...] = ()
    barriers: tuple[BarrierCost, ...] = ()
    timer_resolution_s: Seconds | None = None
    engine: EngineCalibration | None = None
    warnings: tuple[str, ...] = ()
    fitted_to: str | None = None  # the rows of another machine that stand in for measurements
    created: str
    cpubound_version: str

    def measurements(self, kernel: str, page_kind: str) -> dict[int, Measurement]:
        """Return the measurements of a kernel on a page kind by thread count."""
        found = [m for m in self.bandwidth if m.kernel == kernel and m.page_kind == page_kind]
        return {m.threads: m for m in sorted(found, key=lambda m: m.threads)}


def find_saturation(measurements: Iterable[Measurement], tolerance: float = 0.03) -> int | None:
    """Return the smallest thread count whose median bandwidth is within ``tolerance`` of the best.

    The median stands for the machine as it is used; None if nothing was measured.
    """
    by_threads = {m.threads: m.median_bytes_per_s for m in measurements}
    if not by_threads:
        return None
    best = max(by_threads.values())
    return min(t for t, rate in by_threads.items() if rate >= best * (1 - tolerance))


def long_row_seconds(seconds_by_columns: Mapping[int, float]) -> float:
    """Return a type's seconds per byte over its longer rows, where memory shows."""
    ordered = [seconds for _, seconds in sorted(seconds_by_columns.items())]
    return stats.median(ordered[len(ordered) // 2 :])


def memory_shares(seconds_per_byte: Mapping[str, float]) -> dict[str, float]:
    """Return how far memory sets each type's rate: the fastest's time over its own, squared."""
    fastest = min(seconds_per_byte.values())
    return {name: (fastest / seconds) ** 2 for name, seconds in seconds_per_byte.items()}


def memory_share(matrices: Mapping[tuple[str, int], int], shares: Mapping[str, float]) -> float:
    """Return the share of a step's weight bytes (by type and row length) that memory sets.

    A type without a share counts as set by its kernel.
    """
    total = sum(matrices.values())
    if not total:
        return 0.0
    return sum(n * shares.get(name, 0.0) for (name, _), n in matrices.items()) / total


def judge_noise(relative_samples: tuple[float, ...], seconds: float) -> Noise:
    """Give the verdict on the reference kernel's samples, each over its own median.

    Under 5 % is what a dedicated machine shows; over 20 % the median of a short run says
    little about the next one.
    """
    spread = min(stats.relative_spread(relative_samples), MAX_RELATIVE)
    verdict = "quiet" if spread < 0.05 else "noisy" if spread < 0.20 else "very noisy"
    return Noise(
        spread=spread,
        verdict=verdict,
        drift=stats.relative_drift(relative_samples),
        seconds=seconds,
        relative_samples=relative_samples,
    )


def profile_document(profile: MachineProfile) -> dict[str, Any]:
    """Return the profile as the JSON document ``cpubound.profile/1``."""
    document: dict[str, Any] = msgspec.to_builtins(profile)
    for name in ("bandwidth", "placements", "nodes"):
        for row, measurement in zip(document[name], getattr(profile, name), strict=True):
            row["best_bytes_per_s"] = measurement.best_bytes_per_s
            row["median_bytes_per_s"] = measurement.median_bytes_per_s
    return document


def default_profile_folder() -> Path:
    """Return where profiles are kept: ``CPUBOUND_HOME``, or the platform's data folder."""
    from platformdirs import user_data_path

    home = os.environ.get("CPUBOUND_HOME")
    return Path(home) if home else user_data_path("cpubound", appauthor=False)


def default_profile_path() -> Path:
    """Return the newest profile of this machine's folder: the one commands use."""
    return default_profile_folder() / "profile.json"


def check_writable(path: Path) -> None:
    """Raise MachineError if a profile could not be saved here; creates the folder."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise MachineError(
            f"the profile cannot be saved ({path.parent}: {error.strerror}): "
            "give another place with --out FILE"
        ) from error


def save_profile(profile: MachineProfile, path: Path, *, force: bool = True) -> None:
    """Write a profile so that a reader sees the old file or the new one, never half of one.

    Raises
    ------
    UsageError : the file exists and ``force`` is not set.
    MachineError : the folder cannot be written.
    """
    if path.exists() and not force:
        raise UsageError(f"{path} exists: give --force to replace it")
    data = msgspec.json.format(msgspec.json.encode(profile_document(profile)), indent=1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_atomically(path, data + b"\n")
    except OSError as error:
        raise MachineError(
            f"the profile cannot be written ({path}: {error.strerror}): "
            "give another place with --out FILE"
        ) from error


def save_default_profile(profile: MachineProfile) -> Path:
    """Save as the profile of this machine and keep the one before under its date."""
    path = default_profile_path()
    try:
        if path.exists():
            _keep_older(path)
    except OSError as error:
        raise MachineError(
            f"the older profile cannot be kept ({path}: {error.strerror}): "
            "give another place with --out FILE"
        ) from error
    save_profile(profile, path)
    return path


def load_profile(path: str | Path | None = None) -> MachineProfile:
    """Read a profile: the given file, or the one of this machine.

    Raises
    ------
    ProfileError : missing, not a profile, of another schema, or with impossible values.
    """
    chosen = Path(path) if path is not None else default_profile_path()
    try:
        status = chosen.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ProfileError(f"{chosen} is no cpubound profile (not a file): give a saved one")
        if status.st_size > MAX_FILE_BYTES:
            raise ProfileError(f"{chosen} is no cpubound profile (too large): calibrate again")
        data = chosen.read_bytes()
    except FileNotFoundError:
        if path is None:
            raise ProfileError(
                f"this machine has no profile yet ({chosen}): run `cpubound calibrate` first"
            ) from None
        raise ProfileError(f"there is no such profile ({chosen}): check the path") from None
    except OSError as error:
        raise ProfileError(f"the profile cannot be read ({chosen}: {error.strerror})") from error
    return decode_profile(data, str(chosen))


def decode_profile(data: bytes, source: str) -> MachineProfile:
    """Check and decode the bytes of a profile file; ``source`` names it in errors."""
    remedy = "run `cpubound calibrate` again"
    try:
        head = msgspec.json.decode(data, type=_Head)
    except msgspec.DecodeError as error:
        raise ProfileError(f"{source} is no cpubound profile ({error}): {remedy}") from error
    name, _, version = (head.schema or "").partition("/")
    if name != SCHEMA_NAME:
        raise ProfileError(f"{source} is no cpubound profile (schema {head.schema!r}): {remedy}")
    if version != str(SCHEMA_VERSION):
        raise ProfileError(
            f"{source} has schema {head.schema}, this cpubound reads {SCHEMA}: {remedy}"
        )
    try:
        profile = msgspec.json.decode(data, type=MachineProfile)
    except msgspec.DecodeError as error:
        raise ProfileError(f"{source} is damaged ({error}): {remedy}") from error
    _check_values(profile, source, remedy)
    return profile


class _Head(msgspec.Struct):
    schema: str | None = None


def _check_values(profile: MachineProfile, source: str, remedy: str) -> None:
    for row in (*profile.bandwidth, *profile.placements, *profile.nodes):
        if row.threads < 1 or row.bytes_per_pass < 1 or not row.samples_s:
            raise ProfileError(f"{source} is damaged (an empty measurement): {remedy}")
        if not all(0 < sample < 1e6 for sample in row.samples_s):
            raise ProfileError(f"{source} is damaged (impossible sample times): {remedy}")


def _keep_older(path: Path) -> None:
    try:
        stamp = decode_profile(path.read_bytes(), str(path)).created
    except ProfileError:
        stamp = f"damaged-{int(path.stat().st_mtime)}"
    stamp = re.sub(r"[^0-9A-Za-z]+", "-", stamp).strip("-")
    kept = path.with_name(f"profile-{stamp}.json")
    if not kept.exists():
        _write_atomically(kept, path.read_bytes())


def _write_atomically(path: Path, data: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
