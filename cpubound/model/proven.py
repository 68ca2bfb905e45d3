"""Architectures whose traffic was compared with llama.cpp's own graph, node by node."""

from __future__ import annotations

PROVEN_ARCHITECTURES: frozenset[str] = frozenset()
