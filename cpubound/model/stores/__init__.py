"""Where programs keep models on this machine: folders, Ollama's store, caches."""

from __future__ import annotations

from cpubound.model.stores.folders import the_model_in_folder
from cpubound.model.stores.lm_studio import lm_studio_parameters
from cpubound.model.stores.local import LocalModel, kept_model, local_models
from cpubound.model.stores.ollama import ollama_blob, ollama_parameters

__all__ = [
    "LocalModel",
    "kept_model",
    "lm_studio_parameters",
    "local_models",
    "ollama_blob",
    "ollama_parameters",
    "the_model_in_folder",
]
