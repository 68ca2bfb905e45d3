"""Two ceilings: a step takes at least its FLOPs over peak and its bytes over bandwidth."""

from __future__ import annotations

from dataclasses import dataclass

from cpubound.errors import UsageError

MEMORY = "memory"
COMPUTE = "compute"


@dataclass(frozen=True, kw_only=True, slots=True)
class Roofs:
    """What a machine can do at most; ``flops_per_s`` is None where it is not known."""

    bytes_per_s: float
    flops_per_s: float | None = None

    def __post_init__(self) -> None:
        require_positive("a bandwidth", self.bytes_per_s)
        if self.flops_per_s is not None:
            require_positive("a peak rate", self.flops_per_s)

    @property
    def machine_balance(self) -> float | None:
        """FLOP per byte at the ridge point: below it memory binds, above it compute."""
        return None if self.flops_per_s is None else self.flops_per_s / self.bytes_per_s


def require_positive(what: str, value: float) -> float:
    """Return the value, or raise ``UsageError`` if it is zero, negative or not a number."""
    if not value > 0 or value == float("inf"):
        raise UsageError(f"{what} must be positive ({value:g}): give a number above 0")
    return value


def memory_bandwidth(transfers_per_s: float, channels: int) -> float:
    """Return the peak bandwidth of memory channels: transfers × channels × 8 bytes.

    A DDR channel is 64 bits wide (two halves of 32 in DDR5).
    """
    require_positive("a transfer rate", transfers_per_s)
    require_positive("a number of channels", channels)
    return transfers_per_s * channels * 8


def step_seconds(flops: float, n_bytes: float, roofs: Roofs) -> float:
    """Return the least time of a step; without a peak rate, that of its bytes."""
    memory = n_bytes / roofs.bytes_per_s
    return memory if roofs.flops_per_s is None else max(memory, flops / roofs.flops_per_s)


def binding_roof(intensity: float, roofs: Roofs) -> str | None:
    """Return ``memory`` or ``compute``; None where the peak rate is not known."""
    balance = roofs.machine_balance
    if balance is None:
        return None
    return MEMORY if intensity < balance else COMPUTE


def expected_flops_share(intensity: float, roofs: Roofs) -> float | None:
    """Return the share of the peak rate that a kernel of this intensity can reach at best."""
    balance = roofs.machine_balance
    return None if balance is None else min(1.0, intensity / balance)


def expected_bandwidth_share(intensity: float, roofs: Roofs) -> float | None:
    """Return the share of the bandwidth that a kernel of this intensity can use at best."""
    balance = roofs.machine_balance
    return None if balance is None else min(1.0, balance / intensity)
