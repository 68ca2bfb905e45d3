"""The pictures of the documentation: the reference report as people see it.

The report is that of a kept run: its profile, and its judged cells beside their predictions.
Needs the group ``test`` (playwright) and chromium.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from calibrate.kept_runs import RUNS_FOLDER, KeptRun, judge_run, read_runs
from cpubound.cli.report import gather
from cpubound.report.page.contents import ReportContents
from cpubound.report.page.render import render_report
from cpubound.validation.cells import Cell, Validation, summarize

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
MODEL = "llama-3.1-8b"
# Width in pixels and scheme of each picture.
SCREENS = {"report-light": (1280, "light"), "report-dark": (1280, "dark"),
           "report-phone": (375, "light")}  # fmt: skip
_HEIGHT = 1500


def main(argv: Sequence[str]) -> int:
    """Write the reference report's pictures; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m calibrate pictures", description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("run", nargs="?", type=Path, help="a kept run; the latest by default")
    options = parser.parse_args(argv)
    run = read_runs([options.run or max(RUNS_FOLDER.glob("*.json.xz"))])[0]
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_text(render_report(reference_report(run)), encoding="utf-8")
        options.folder.mkdir(parents=True, exist_ok=True)
        photograph(page, options.folder)
    return 0


def reference_report(run: KeptRun) -> ReportContents:
    """Return the contents of the report of a kept run."""
    return gather((MODEL,), None, None, 6.0, run.profile, (observed(run),))


def observed(run: KeptRun) -> Validation:
    """Return a run's judged cells as a validation."""
    cells = tuple(
        Cell(
            prediction=judged.prediction,
            observed_tokens_per_s=judged.cell.observed_tokens_per_s,
            samples_s=judged.cell.runs_s,
            relative_error=judged.error,
            paired_error=None,
            inside=judged.is_inside,
            naive_tokens_per_s=judged.prediction.ceiling_tokens_per_s,
            naive_error=judged.prediction.ceiling_tokens_per_s / judged.cell.observed_tokens_per_s
            - 1,
            noise_floor=judged.cell.noise_floor,
            reference_bytes_per_s=None,
        )
        for judged in judge_run(run, sets=("judged",))
    )
    engine = run.profile.engine
    name = "unknown" if engine is None else f"{engine.name} {engine.version}"
    return Validation(cells=cells, summary=summarize(cells), engine=name)


def photograph(page: Path, folder: Path) -> None:
    """Write the top of the page as PNG at each width and scheme."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for name, (width, scheme) in SCREENS.items():
            view = browser.new_page(
                viewport={"width": width, "height": _HEIGHT},
                color_scheme="dark" if scheme == "dark" else "light",
            )
            view.goto(page.as_uri())
            view.wait_for_selector("html[data-drawn=yes]")
            view.screenshot(path=folder / f"{name}.png")
            print(f"{folder / name}.png")
        browser.close()
