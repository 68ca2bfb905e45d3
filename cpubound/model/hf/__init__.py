"""Read the ``config.json`` of a Hugging Face model into a ``ModelShape``."""

from __future__ import annotations

from cpubound.model.hf.shape import read_config, shape_from_config

__all__ = ["read_config", "shape_from_config"]
