"""File types: their names, and which tensor gets which type at each."""

from __future__ import annotations

from cpubound.model.ftype.file_types import (
    COMMON_FILE_TYPES,
    DEFAULT_FILE_TYPE,
    FILE_TYPES,
    FileType,
    file_type,
    is_file_type,
    parse_file_types,
)

__all__ = [
    "COMMON_FILE_TYPES",
    "DEFAULT_FILE_TYPE",
    "FILE_TYPES",
    "FileType",
    "file_type",
    "is_file_type",
    "parse_file_types",
]
