"""``cpubound doctor``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cpubound.cli.options import output_options, refuse_with

if TYPE_CHECKING:
    from cpubound.advise.values import Finding


@click.command(name="doctor")
@click.option(
    "--sysroot",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Read /proc and /sys under DIR instead of this machine's.",
)
@click.option("--model", metavar="MODEL", help="Look at a model too: its file and its form.")
@click.option("--list", "list_only", is_flag=True, help="List what is looked for, and stop.")
@output_options
def command(
    sysroot: Path | None,
    model: str | None,
    list_only: bool,
    style: str,
    json_path: str | None,
    force: bool,
) -> None:
    """Show what this machine is, what may be used of it, and what slows it.

    Nothing is measured; calibrate does that.
    """
    from cpubound.advise.findings import find_machine_findings
    from cpubound.advise.registry import list_rules, order
    from cpubound.cli.output import print_result
    from cpubound.machine.read import read_machine
    from cpubound.report import machine as report

    if list_only:
        refuse_with("--list", "--model", "--sysroot")
        rules = list_rules()
        print_result(
            report.rules_document(rules),
            report.rules_table(rules),
            style=style,
            json_path=json_path,
            force=force,
        )
        return
    machine = read_machine(sysroot)
    about_model = () if model is None else _look_at(model)
    findings = order((*find_machine_findings(machine), *about_model))
    print_result(
        report.machine_document(machine, findings),
        report.machine_table(machine, findings),
        style=style,
        json_path=json_path,
        force=force,
        text=report.machine_text(machine, findings),
    )


def _look_at(model: str) -> tuple[Finding, ...]:
    """Return the findings about a model, or the one about a file that cannot be one."""
    from cpubound.advise.case import ModelCase
    from cpubound.advise.refusals import finding_of_refusal
    from cpubound.advise.registry import find_file_findings
    from cpubound.errors import ModelFileError
    from cpubound.model.resolve import resolve_model

    try:
        return find_file_findings(ModelCase(spec=resolve_model(model)))
    except ModelFileError as error:
        refusal = finding_of_refusal(error)
        if refusal is None:
            raise
        return (refusal,)
