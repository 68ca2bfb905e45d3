"""Package data: each file is there by its place in the package."""

from __future__ import annotations

from pathlib import Path

import pytest

import cpubound
from cpubound.package_data import list_names, parse_toml, read_toml

ROOT = Path(cpubound.__file__).parent
FILES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=str)
def test_every_toml_file_of_the_package_is_read_by_its_place(path: Path) -> None:
    assert read_toml(*path.parts) == parse_toml((ROOT / path).read_text(encoding="utf-8"))


def test_names_are_those_of_the_files_of_one_suffix_sorted() -> None:
    in_folder = sorted(path.stem for path in FILES if path.parent == Path("model/catalogue"))
    assert in_folder
    assert list_names("model", "catalogue", suffix=".toml") == tuple(in_folder)
    assert list_names("model", "catalogue", suffix=".json") == ()
