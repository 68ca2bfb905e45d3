"""Where programs keep models on this machine: folders, Ollama's store, caches."""

from __future__ import annotations

from cpubound.model.stores.folders import the_model_in_folder
from cpubound.model.stores.local import LocalModel, local_models
from cpubound.model.stores.ollama import ollama_blob

__all__ = ["LocalModel", "local_models", "ollama_blob", "the_model_in_folder"]
