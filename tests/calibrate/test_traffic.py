"""The traffic experiment: its table, its marks, and its exit code."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from calibrate import traffic


def graphs(count: int) -> list[dict[str, object]]:
    with lzma.open(traffic.GRAPHS, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line, _ in zip(lines, range(count), strict=False)]


def write(path: Path, content: list[dict[str, object]]) -> Path:
    with lzma.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(graph) + "\n" for graph in content)
    return path


def test_saved_models_and_kept_graphs_are_within_the_marks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert traffic.main([]) == 0
    out = capsys.readouterr().out
    assert "286 of 286 models of 130 architectures within the marks" in out
    assert out.count("\n| ") == 46
    assert "| llama-dense" in out
    assert "OUTSIDE" not in out


@pytest.mark.parametrize("figure", range(4))
def test_a_figure_outside_its_mark_ends_with_1_and_names_the_model(
    figure: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    kept = graphs(2)
    counted = kept[1]["graph"]
    assert isinstance(counted, dict)
    next(iter(counted.values()))[figure] *= 2
    monkeypatch.setattr(traffic, "GRAPHS", write(tmp_path / "graphs.xz", kept))
    assert traffic.main([]) == 1
    assert f"outside: {kept[1]['name']}" in capsys.readouterr().err
