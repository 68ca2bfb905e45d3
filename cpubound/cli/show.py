"""``cpubound show``."""

from __future__ import annotations

import click

from cpubound.cli.options import output_options


@click.command(name="show")
@click.argument("profile_path", required=False, metavar="[PROFILE]")
@output_options
def command(profile_path: str | None, style: str, json_path: str | None, force: bool) -> None:
    """Print a saved profile again: the machine, and how near llama.cpp comes to its roof.

    PROFILE is a file; without one, this machine's.
    """
    from cpubound.cli.output import print_result
    from cpubound.profile.file import load_profile, profile_document
    from cpubound.report.profile import profile_text
    from cpubound.report.tables import indent, render_table
    from cpubound.report.type_rates import scaling_table

    profile = load_profile(profile_path)
    table = scaling_table(profile)
    text = profile_text(profile, ())
    if table.rows:
        text += f"\n\n{indent(render_table(table))}"
    print_result(
        profile_document(profile),
        table,
        style=style,
        json_path=json_path,
        force=force,
        text=text,
    )
