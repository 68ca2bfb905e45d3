"""A progress bar on stderr for what takes longer than a second, only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cpubound.foreign import visible

Progress = Callable[[str, float], None]


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Give a function that shows a stage and how much of it is done (0 … 1)."""
    if not sys.stderr.isatty():
        yield lambda stage, done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        TextColumn("{task.description:<20}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        tasks: dict[str, object] = {}

        def show(stage: str, done: float) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(visible(stage), total=1.0)
            bar.update(tasks[stage], completed=done)  # type: ignore[arg-type]

        yield show
