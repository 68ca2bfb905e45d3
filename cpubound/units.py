"""Units as people read them: values inside are SI base units, GB and GiB only when printed."""

from __future__ import annotations

KIB = 2**10
MIB = 2**20
GIB = 2**30
GB = 1e9

_SI_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY_PREFIXES = ((GIB * 1024, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))


def format_significant(value: float, digits: int = 3) -> str:
    """Write a positive number with at least ``digits`` significant digits, no exponent.

    Digits before the decimal point are never rounded away: 1234.5 becomes ``1234``.
    """
    if value == 0:
        return "0"
    decimals = 0
    magnitude = abs(value)
    while magnitude < 10 ** (digits - 1) and decimals < 9:
        magnitude *= 10
        decimals += 1
    return f"{value:.{decimals}f}"


def format_decimal_bytes(n_bytes: float) -> str:
    """Write a size in decimal units (``4.92 GB``), as file sizes and traffic are given."""
    for factor, prefix in _SI_PREFIXES:
        if n_bytes >= factor:
            return f"{format_significant(n_bytes / factor)} {prefix}B"
    return f"{n_bytes:.0f} B"


def format_binary_bytes(n_bytes: float) -> str:
    """Write a size in binary units (``32 MiB``), as memory and caches are sold."""
    for factor, unit in _BINARY_PREFIXES:
        if n_bytes >= factor:
            number = format_significant(n_bytes / factor)
            if "." in number:
                number = number.rstrip("0").rstrip(".")
            return f"{number} {unit}"
    return f"{n_bytes:.0f} B"


def format_rate(bytes_per_s: float) -> str:
    """Write a bandwidth (``56.1 GB/s``)."""
    return f"{format_significant(bytes_per_s / GB)} GB/s"


def format_seconds(seconds: float) -> str:
    """Write a duration with the unit that fits (``12.3 ms``)."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= factor:
            return f"{format_significant(seconds / factor)} {unit}"
    return f"{format_significant(seconds / 1e-9)} ns"


def format_percent(fraction: float, digits: int = 1) -> str:
    """Write a signed relative difference (``+1.9 %``)."""
    return f"{fraction * 100:+.{digits}f} %".replace("-", "−")


def format_count(number: int, noun: str) -> str:
    """Write a number of things: ``1 thread``, ``2 threads``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
