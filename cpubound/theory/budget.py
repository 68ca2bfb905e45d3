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


def require_context(context_tokens: float) -> float:
    """Return a context, or raise ``UsageError`` if it is negative."""
    if not context_tokens >= 0:
        raise UsageError(f"a context cannot be negative ({context_tokens:g}): give 0 or more")
    return context_tokens


def memory_bandwidth(transfers_per_s: float, channels: int, bytes_per_transfer: int = 8) -> float:
    """Return the peak bandwidth of memory channels: transfers × channels × bytes of one transfer.

    A DDR channel is 64 bits wide (two halves of 32 in DDR5).
    """
    require_positive("a transfer rate", transfers_per_s)
    require_positive("a number of channels", channels)
    return transfers_per_s * channels * require_positive("a channel's width", bytes_per_transfer)


def kv_bytes_per_token(
    layers: int, kv_heads: int, head_dim: int, bytes_per_element: float = 2.0
) -> float:
    """Return the KV cache of one token of context: K and V of every layer.

    The factor of 2 is for K and V; bytes per element enter once.
    """
    for what, value in (
        ("a number of layers", layers),
        ("a number of KV heads", kv_heads),
        ("a head's size", head_dim),
    ):
        require_positive(what, value)
    return 2 * layers * kv_heads * head_dim * require_positive("an element", bytes_per_element)


def decode_bytes(
    weight_bytes: float, kv_bytes_per_token: float, context_tokens: float = 0, batch: float = 1
) -> float:
    """Return the bytes of one decode step: the weights once, the KV cache for every sequence."""
    require_positive("the weights' size", weight_bytes)
    require_positive("a batch", batch)
    return weight_bytes + batch * require_context(context_tokens) * kv_bytes_per_token


def decode_tokens_per_s(n_bytes: float, bytes_per_s: float, batch: float = 1) -> float:
    """Return the ceiling that bandwidth sets: ``batch`` tokens for every ``n_bytes`` read."""
    require_positive("a bandwidth", bytes_per_s)
    return batch * bytes_per_s / require_positive("the bytes of a step", n_bytes)


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
