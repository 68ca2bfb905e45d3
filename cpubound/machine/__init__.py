"""What this machine is, without measuring anything."""

from __future__ import annotations

from cpubound.machine.read import read_machine

__all__ = ["read_machine"]
