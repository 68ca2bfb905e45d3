"""File types: their names, their ``llama_ftype`` ids, and the type most tensors get.

From ``include/llama.h`` and ``llama_ftype_get_default_type`` of llama.cpp
``src/llama-quant.cpp``, commit 0c1e57098bba.
"""

from __future__ import annotations

from dataclasses import dataclass

from cpubound.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class FileType:
    """One llama.cpp file type (``enum llama_ftype``) and the type most tensors get."""

    name: str
    id: int
    default_type: str


FILE_TYPES: tuple[FileType, ...] = tuple(
    FileType(name=name, id=id_, default_type=default_type)
    for id_, name, default_type in (
        (0, "F32", "F32"),
        (1, "F16", "F16"),
        (2, "Q4_0", "Q4_0"),
        (3, "Q4_1", "Q4_1"),
        (7, "Q8_0", "Q8_0"),
        (8, "Q5_0", "Q5_0"),
        (9, "Q5_1", "Q5_1"),
        (10, "Q2_K", "Q2_K"),
        (11, "Q3_K_S", "Q3_K"),
        (12, "Q3_K_M", "Q3_K"),
        (13, "Q3_K_L", "Q3_K"),
        (14, "Q4_K_S", "Q4_K"),
        (15, "Q4_K_M", "Q4_K"),
        (16, "Q5_K_S", "Q5_K"),
        (17, "Q5_K_M", "Q5_K"),
        (18, "Q6_K", "Q6_K"),
        (19, "IQ2_XXS", "IQ2_XXS"),
        (20, "IQ2_XS", "IQ2_XS"),
        (21, "Q2_K_S", "Q2_K"),
        (22, "IQ3_XS", "IQ3_S"),
        (23, "IQ3_XXS", "IQ3_XXS"),
        (24, "IQ1_S", "IQ1_S"),
        (25, "IQ4_NL", "IQ4_NL"),
        (26, "IQ3_S", "IQ3_S"),
        (27, "IQ3_M", "IQ3_S"),
        (28, "IQ2_S", "IQ2_XS"),
        (29, "IQ2_M", "IQ2_S"),
        (30, "IQ4_XS", "IQ4_XS"),
        (31, "IQ1_M", "IQ1_M"),
        (32, "BF16", "BF16"),
        (36, "TQ1_0", "TQ1_0"),
        (37, "TQ2_0", "TQ2_0"),
        (38, "MXFP4_MOE", "MXFP4"),
        (40, "Q1_0", "Q1_0"),
        (41, "Q2_0", "Q2_0"),
    )
)

# What people download most, largest first.
COMMON_FILE_TYPES = (
    *("F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "IQ4_XS", "Q3_K_M", "Q2_K"),
)

DEFAULT_FILE_TYPE = "Q4_K_M"

_BY_NAME = {file_type.name: file_type for file_type in FILE_TYPES}
_BY_ID = {file_type.id: file_type for file_type in FILE_TYPES}


def file_type(name_or_id: str | int) -> FileType:
    """Find a file type by its name (any case) or ``llama_ftype`` id.

    Raises ``UsageError`` for one that llama.cpp cannot write.
    """
    found = (
        _BY_NAME.get(name_or_id.upper()) if isinstance(name_or_id, str) else _BY_ID.get(name_or_id)
    )
    if found is None:
        raise UsageError(
            f"unknown file type ({name_or_id}): give one of {', '.join(sorted(_BY_NAME))}"
        )
    return found


def is_file_type(name: str) -> bool:
    """Tell whether this is the name of a file type, in any case."""
    return name.upper() in _BY_NAME


def parse_file_types(text: str) -> tuple[str, ...]:
    """Split ``Q4_0,Q8_0`` (or ``all``) into names of file types, each once.

    Raises ``UsageError`` for a name that is not one.
    """
    if text.strip().lower() == "all":
        return tuple(_BY_NAME)
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise UsageError(f"no file type given ({text!r}): try Q4_K_M,Q8_0")
    return tuple(dict.fromkeys(file_type(name).name for name in names))
