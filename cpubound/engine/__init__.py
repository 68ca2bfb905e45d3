"""llama.cpp: run it, count what it reads, write files for it."""

from __future__ import annotations

from cpubound.engine.inprocess import LlamaCppRunner, find_runner, open_runner

__all__ = ["LlamaCppRunner", "find_runner", "open_runner"]
