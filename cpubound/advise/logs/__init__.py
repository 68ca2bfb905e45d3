"""Rates out of what the programs that run models print: one module per program."""

from __future__ import annotations

from cpubound.advise.logs.read import read_log, read_log_file
from cpubound.advise.logs.run import LoggedRun, choose_run, require_cpu

__all__ = ["LoggedRun", "choose_run", "read_log", "read_log_file", "require_cpu"]
