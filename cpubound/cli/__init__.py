"""The command line: the only room that prints, and ``main``, the only catcher of errors."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from cpubound import __version__
from cpubound.errors import CpuboundError

COMMANDS = {
    "calibrate": "Measure this machine, and llama.cpp on it.",
    "predict": "Say how fast a model will decode.",
    "validate": "Run llama.cpp and show predicted beside observed.",
    "tune": "Choose threads and settings for a model.",
    "inspect": "Show the bytes a model reads for each token.",
    "doctor": "Show what this machine is, and what slows it.",
    "roofline": "Show what binds on a roofline, here or on a named machine.",
    "synth": "Write a synthetic GGUF of a known shape.",
}
INTERRUPTED = 130


class LazyGroup(click.Group):
    """Imports a command's module when it is used, so that --help and --version stay quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"cpubound.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="cpubound", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def group(debug: bool) -> None:
    """Measure a CPU's memory, predict how fast llama.cpp decodes a model on it, check it."""


def main(argv: Sequence[str]) -> int:
    """Run a command line and return its exit code.

    0 done; 1 a check that was asked for did not hold; 2 usage; 3 bad input file; 4 this
    machine cannot do it; 130 interrupted.
    """
    # Taken out here, so that it works before and behind the command's name.
    debug = "--debug" in argv
    arguments = [argument for argument in argv if argument != "--debug"]
    try:
        result = group.main(arguments, prog_name="cpubound", standalone_mode=False)
        sys.stdout.flush()
    except CpuboundError as error:
        if debug:
            raise
        click.echo(f"cpubound: error: {error}", err=True)
        return error.exit_code
    except click.UsageError as error:
        click.echo(f"cpubound: error: {error.format_message()}", err=True)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("cpubound: interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`| head`): what is left to flush has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE if hasattr(signal, "SIGPIPE") else 1
    return result if isinstance(result, int) else 0
