"""What is kept in tests/data, as tests read it; data/README.md tells where it comes from."""

from __future__ import annotations

import csv
import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data"
PROJECT = Path(__file__).parents[2]
TOPOLOGIES = DATA / "topologies"


def read_text(path: Path) -> str:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return file.read()


# Machine -> what hwloc and lscpu say of its snapshot.
EXPECTED_MACHINES: dict[str, Any] = json.loads((TOPOLOGIES / "expected.json").read_text())
# Model -> "depth=D,fa=F" -> bytes that one step moves in llama.cpp's graph.
TRAFFIC_TRUTH: dict[str, Any] = json.loads(
    read_text(DATA / "architectures" / "traffic-truth.json.xz")
)


def published_rates() -> list[dict[str, str]]:
    return list(csv.DictReader(read_text(DATA / "published-rates.csv.xz").splitlines()))


def unpack_tiny_models(folder: Path) -> None:
    """Write each small model: its header, and a hole for its weights, which are zeros."""
    with tarfile.open(DATA / "architectures" / "tiny-architectures.tar.xz") as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is not None:
                with (folder / Path(member.name).name).open("wb") as file:
                    file.write(content.read(2**16))
                    file.truncate(member.size)
