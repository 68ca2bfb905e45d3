"""Fixtures that tests of several rooms share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kept import unpack_tiny_models
from skip_guard import pytest_make_collect_report, pytest_runtest_makereport

from cpubound.cli import main
from cpubound.engine import LlamaCppRunner

# Hooks that fail what may not be skipped.
__all__ = ("pytest_make_collect_report", "pytest_runtest_makereport")


@pytest.fixture
def invoke(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command in this process: its exit code, its output and its errors."""

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def runner() -> Iterator[LlamaCppRunner]:
    """llama.cpp in a child process; for tests that are skipped where it is not installed."""
    with LlamaCppRunner() as engine:
        yield engine


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the small models that llama.cpp saved; not to be written to."""
    folder = tmp_path_factory.mktemp("architectures")
    unpack_tiny_models(folder)
    return folder
