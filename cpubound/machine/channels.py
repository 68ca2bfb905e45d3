"""Which memory channel a slot belongs to, by the names boards give their slots."""

from __future__ import annotations

import re

# "Channel A", "ChannelA-DIMM0", "P0 CHANNEL C", "Controller0-ChannelA-DIMM0"
_CHANNEL_WORD = re.compile(r"channel[ _-]?([a-z]|[0-9]{1,2})(?![a-z])", re.IGNORECASE)
# "DIMM_A1", "DIMM B2", "P1-DIMMC1", "CPU1_DIMM_A1"
_SLOT_LETTER = re.compile(r"dimm[ _-]?([a-z])[0-9]?$", re.IGNORECASE)
_SOCKET_WORD = re.compile(
    r"(?:^|[^a-z])((?:p|cpu[ _-]?|node[ _-]?|controller[ _-]?)[0-9])", re.IGNORECASE
)


def find_channel(locator: str | None, bank: str | None) -> str | None:
    """Name the channel from a slot's and a bank's label; None if neither tells it.

    Sockets and controllers named there become part of the name, so that equal letters
    of two of them stay apart.
    """
    for text in (locator or "", bank or ""):
        match = _CHANNEL_WORD.search(text) or _SLOT_LETTER.search(text)
        if match is not None:
            sockets = _SOCKET_WORD.findall(f"{bank or ''} {locator or ''}")
            return " ".join([*dict.fromkeys(word.upper() for word in sockets), match[1].upper()])
    return None
