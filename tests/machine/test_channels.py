"""cpubound.machine.channels."""

from __future__ import annotations

import pytest

from cpubound.machine.channels import find_channel


@pytest.mark.parametrize(
    ("locator", "bank", "channel"),
    [
        ("DIMM_A1", "BANK 0", "A"),
        ("DIMM_B2", "BANK 2", "B"),
        ("ChannelA-DIMM0", "BANK 0", "A"),
        ("Controller1-ChannelB-DIMM0", "BANK 3", "CONTROLLER1 B"),
        ("DIMM 0", "P0 CHANNEL C", "P0 C"),
        ("Channel 3", "x", "3"),
        ("P1-DIMMC1", "P1_Node1", "P1 NODE1 C"),
        ("CPU1_DIMM_A1", "NODE 1", "NODE 1 CPU1 A"),
        ("SODIMM 1", "BANK 0", None),
        ("", "", None),
    ],
)
def test_the_channel_is_told_by_the_locator(locator: str, bank: str, channel: str | None) -> None:
    assert find_channel(locator, bank) == channel
