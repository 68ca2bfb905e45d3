"""Model files that are refused: the same causes as findings, for who looks at a file first."""

from __future__ import annotations

from collections.abc import Mapping

from cpubound.advise.values import ERROR, Finding
from cpubound.errors import ModelFileError

# Code of ``ModelFileError``: when it is raised, and what to do.
REFUSALS: Mapping[str, tuple[str, str]] = {
    "truncated": (
        "a file that is cut short",
        "download it again, and compare its size with the one published",
    ),
    "not-gguf": (
        "a file that is no GGUF: a web page, an LFS pointer, other weights",
        "download the file itself (huggingface-cli download, or the link named resolve)",
    ),
    "split": (
        "shards that were joined, are missing, or are not named as shards",
        "keep all shards beside each other under their own names and give the first",
    ),
    "projector": (
        "a file without a language model in it: projector, adapter, vocabulary",
        "give the language model that it belongs to",
    ),
}


def finding_of_refusal(error: ModelFileError) -> Finding | None:
    """Return the finding for a file that was refused, None where its cause has no code."""
    if error.code not in REFUSALS:
        return None
    return Finding(
        code=str(error.code),
        severity=ERROR,
        evidence=dict(error.evidence),
        message=str(error),
        remedy=REFUSALS[str(error.code)][1],
    )
