"""Read GGUF files, here or remote, into a ``ModelSpec``: headers only."""

from __future__ import annotations

from cpubound.model.gguf.reader import read_gguf, read_gguf_from, shard_names

__all__ = ["read_gguf", "read_gguf_from", "shard_names"]
