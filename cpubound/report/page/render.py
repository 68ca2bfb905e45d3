"""A report as one HTML file that needs nothing else: no network, no fonts, no folder."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import msgspec

from cpubound import __version__
from cpubound.report.charts.style import LEGEND_PIXELS, PAGE, Chart, config
from cpubound.report.comparison import comparison_document
from cpubound.report.document import to_document
from cpubound.report.machine import machine_document
from cpubound.report.page.contents import ComparisonContents, ReportContents
from cpubound.report.page.sections import (
    Answer,
    Section,
    answer,
    comparison_answer,
    comparison_sections,
    sections,
    source_rows,
)
from cpubound.report.predictions import prediction_document, profile_reference
from cpubound.report.validation import validation_document

SCHEMA = "cpubound.report/1"
# What the page's own script takes from the library.
_EXPORTS = "window.vegaEmbed = vegaEmbed;"


def render_report(contents: ReportContents) -> str:
    """Return the page of a machine and of models on it."""
    machine = contents.profile.machine
    cpu = machine.cpu_model or machine.architecture
    names = list(dict.fromkeys(model.table[0].model for model in contents.models))
    return _render(
        contents,
        subject=f"{', '.join(names)} on {cpu}" if names else cpu,
        answer=answer(contents),
        sections=sections(contents),
        document=report_document(contents),
    )


def render_comparison(contents: ComparisonContents) -> str:
    """Return the page of two profiles."""
    return _render(
        contents,
        subject="Two profiles compared",
        answer=comparison_answer(contents),
        sections=comparison_sections(contents),
        document=comparison_document(contents.a, contents.b, contents.comparison),
    )


def _render(
    contents: ReportContents | ComparisonContents,
    *,
    subject: str,
    answer: Answer,
    sections: Sequence[Section],
    document: Mapping[str, Any],
) -> str:
    """Fill the template.

    Names come from files of strangers: the template escapes everything, JSON in it cannot end its
    element, and the page's own policy runs no script but the two it was made with.
    """
    import jinja2
    import vl_convert

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    # Escapes <, >, & and ' as \uXXXX; what JSON cannot hold is null.
    environment.policies["json.dumps_function"] = lambda value, **_: _json(value)
    charts = {chart.name: _panels(chart) for section in sections for chart in section.charts}
    library = vl_convert.javascript_bundle(_EXPORTS)
    script = _part("page.js")
    return environment.from_string(_part("page.html")).render(
        subject=subject,
        answer=answer,
        sections=sections,
        sources=source_rows(contents),
        version=__version__,
        charts={"config": config(PAGE), "legend_pixels": LEGEND_PIXELS, "charts": charts},
        document=document,
        style=_part("page.css"),
        library=library,
        script=script,
        policy=_policy(library, script),
    )


def report_document(contents: ReportContents) -> dict[str, Any]:
    """Return ``cpubound.report/1``: the documents that the page's figures are from."""
    profile = contents.profile
    return {
        "schema": SCHEMA,
        "made": contents.made,
        "made_by": contents.made_by,
        "cpubound_version": __version__,
        "profile": profile_reference(profile),
        "target_tokens_per_s": contents.target,
        "machine": machine_document(profile.machine, contents.findings),
        "bandwidth": to_document(profile.bandwidth),
        "noise": to_document(profile.noise),
        "summary": to_document(contents.summary),
        "models": [
            prediction_document(model.table[0].model, profile, model.curves, model.prompts)
            for model in contents.models
        ],
        "validations": [validation_document(profile, v) for v in contents.validations],
    }


def _panels(chart: Chart) -> dict[str, Any]:
    """Return the specifications of a chart's panels, each as wide as its place on the page."""
    specs = [panel.properties(width="container").to_dict() for panel in chart.panels]
    padding = {"left": 4, "top": 4, "right": 8 + chart.label_width, "bottom": 4}
    return {
        "specs": [spec | {"padding": padding, "config": {}} for spec in specs],
        "square": chart.is_square,
    }


def _policy(*scripts: str) -> str:
    """Return a content security policy: these scripts, styles of the page, and no request."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:"
    )


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _part(name: str) -> str:
    return files("cpubound").joinpath(f"report/page/{name}").read_text(encoding="utf-8")
