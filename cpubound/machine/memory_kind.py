"""Memory as people name it: ``ddr5-5600-2ch``, ``lpddr5x-8533-128bit``, ``hbm2e-3200-4096bit``."""

from __future__ import annotations

import re

import msgspec

from cpubound.errors import UsageError

# Width of a channel as shops and CPU makers count them: a DDR5 module's two subchannels are one,
# and so are four of LPDDR's 16-bit channels.
CHANNEL_BITS = 64
MAX_WIDTH_BITS = 8192

# Transfers per second (millions) that modules of each type are sold at: JEDEC's slowest grade to
# the fastest overclocked module. A speed outside is a slip of the keys.
_SPEEDS = {
    "ddr3": (800, 2933),
    "ddr3l": (800, 2133),
    "lpddr3": (800, 2133),
    "ddr4": (1600, 5333),
    "lpddr4": (1600, 4267),
    "lpddr4x": (1600, 4267),
    "ddr5": (3200, 10000),
    "mrdimm": (8000, 12800),
    "lpddr5": (3200, 6400),
    "lpddr5x": (3200, 10667),
    "hbm2": (1000, 2400),
    "hbm2e": (2000, 3600),
    "hbm3": (4000, 6400),
}
_TYPES = "|".join(sorted(_SPEEDS, key=len, reverse=True))
MEMORY_WORDS = re.compile(
    rf"""(?:\b\d{{1,4}}\s*(?:x\s*\d{{1,4}}\s*)?[gt]i?b\s+(?:of\s+)?)?  # how much is not how fast
    (?:\b(?P<count>single|dual|triple|quad|octa)[\s-]channel\s+)?
    \b(?P<type>{_TYPES})\s*[-\s@]\s*(?P<speed>\d{{3,6}})\b(?:\s*(?:mt/s|mhz))?
    (?:[-\s,]*(?P<number>\d{{1,6}})[-\s]*(?P<unit>ch\b|channels?\b|bits?\b))?
    (?:\s*,?\s*(?P<count_after>single|dual|triple|quad|octa)[\s-]channel)?""",
    re.VERBOSE,
)
_COUNTS = {"single": 1, "dual": 2, "triple": 3, "quad": 4, "octa": 8}


class MemoryKind(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one type and speed on all channels of a socket.

    ``width_bits`` is None where the words give a type and speed but no number of channels.
    """

    type: str  # "ddr5", "lpddr5x", …
    transfers_per_s: float
    width_bits: int | None = None

    @property
    def bytes_per_s(self) -> float | None:
        """Peak bandwidth: transfers × width."""
        if self.width_bits is None:
            return None
        return self.transfers_per_s * self.width_bits / 8

    @property
    def words(self) -> str:
        """The words that ``parse_memory`` reads as this: ``ddr5-5600-2ch``."""
        text = f"{self.type}-{self.transfers_per_s / 1e6:.0f}"
        if self.width_bits is None:
            return text
        if self.type.startswith(("lpddr", "hbm")) or self.width_bits % CHANNEL_BITS:
            return f"{text}-{self.width_bits}bit"
        return f"{text}-{self.width_bits // CHANNEL_BITS}ch"


def parse_memory(words: str) -> MemoryKind:
    """Read one kind of memory, in any case.

    Raises ``UsageError`` for words that are none, and for a speed or width that no memory of this
    type has.
    """
    match = MEMORY_WORDS.fullmatch(words.strip().lower())
    if match is None:
        raise UsageError(
            f"not memory ({words[:60]}): write type, speed and channels or bus width, as in "
            "ddr5-5600-2ch or lpddr5x-8533-128bit"
        )
    return memory_of(match)


def memory_of(match: re.Match[str]) -> MemoryKind:
    """Return the memory that ``MEMORY_WORDS`` found in lower-case words, with its checks."""
    kind, speed = match["type"], int(match["speed"])
    low, high = _SPEEDS[kind]
    if not low <= speed <= high:
        raise UsageError(
            f"no {kind.upper()} of this speed ({speed}): give {low} to {high} million transfers/s"
        )
    width = _width_bits(match)
    if width is not None and not 16 <= width <= MAX_WIDTH_BITS:
        raise UsageError(
            f"no memory of this width ({match['number']} {match['unit']}): give 1 to "
            f"{MAX_WIDTH_BITS // CHANNEL_BITS} channels"
        )
    return MemoryKind(type=kind, transfers_per_s=speed * 1e6, width_bits=width)


def _width_bits(match: re.Match[str]) -> int | None:
    if match["number"] is not None:
        number = int(match["number"])
        return number if match["unit"].startswith("bit") else number * CHANNEL_BITS
    count = match["count"] or match["count_after"]
    return None if count is None else _COUNTS[count] * CHANNEL_BITS
