"""Validations read back from JSON: what was written, and nothing that only looks like it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import standard_profile
from pages import observed

from cpubound.errors import InputError
from cpubound.report.validation import validation_document
from cpubound.validation.file import read_validation

PROFILE = standard_profile()
VALIDATION = observed(PROFILE)


def document(**changes: Any) -> bytes:
    return msgspec.json.encode({**validation_document(PROFILE, VALIDATION), **changes})


def cell(**changes: Any) -> list[dict[str, Any]]:
    first = validation_document(PROFILE, VALIDATION)["cells"][0]
    return [{**first, **changes}]


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "validation.json"
    path.write_bytes(document())
    assert validation_document(PROFILE, read_validation(path)) == validation_document(
        PROFILE, VALIDATION
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        document(schema="cpubound.profile/2"),
        document(cells=[]),
        document(cells=[{}]),
        document(cells=cell(observed_tokens_per_s=-1.0)),
        document(cells=cell(samples_s=[])),
        document(cells=cell(samples_s=[0.0])),
        document(cells=cell(low=None)),
    ],
)
def test_another_file_is_refused_in_one_line(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "validation.json"
    path.write_bytes(data)
    with pytest.raises(InputError, match="cpubound validate --json FILE"):
        read_validation(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_validation(tmp_path / "none.json")
