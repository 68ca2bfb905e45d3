"""``cpubound inspect``."""

from __future__ import annotations

import click

from cpubound.cli.options import MAX_DEPTH, attention_options, output_options


@click.command(name="inspect")
@click.argument("model")
@click.option(
    "--depth",
    "-d",
    type=click.IntRange(0, MAX_DEPTH),
    default=0,
    show_default=True,
    help="Tokens already in the cache.",
)
@click.option("--n-ctx", type=click.IntRange(1), help="Cells allocated.  [default: the depth]")
@click.option(
    "--batch",
    "-b",
    type=click.IntRange(1, 4096),
    default=1,
    show_default=True,
    help="Sequences decoded together.",
)
@attention_options
@output_options
def command(
    model: str,
    depth: int,
    n_ctx: int | None,
    batch: int,
    kv_type: str,
    flash_attn: str,
    style: str,
    json_path: str | None,
    force: bool,
) -> None:
    """Show the bytes that MODEL reads and writes for each token.

    MODEL is a .gguf file (any shard of a split one), a catalogue name with an optional file type
    (llama-3.1-8b:Q4_K_M), a folder, a Hugging Face config.json, or ollama:NAME.
    """
    from cpubound import api
    from cpubound.cli.output import print_result
    from cpubound.report import traffic as report

    traffic = api.inspect_model(
        model,
        depth=depth,
        n_ctx=n_ctx,
        batch=batch,
        kv_type=kv_type,
        flash_attn=flash_attn != "off",
    )
    print_result(
        report.traffic_document(traffic),
        report.traffic_table(traffic),
        style=style,
        json_path=json_path,
        force=force,
        before=report.traffic_heading(traffic),
        after=report.traffic_notes(traffic),
        csv_table=report.traffic_rows(traffic),
    )
