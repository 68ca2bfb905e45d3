"""Bytes that one decode step of a model reads and writes, from its header alone."""

from __future__ import annotations

from cpubound.model.traffic.prompt import prompt_steps
from cpubound.model.traffic.step import compute_traffic

__all__ = ["compute_traffic", "prompt_steps"]
