"""The command line: the only room that prints, and ``main``, the only catcher of errors."""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import click

from cpubound import __version__
from cpubound.cli.terminal import accept_any_encoding, say, show_traceback
from cpubound.cli.termination import Ended, ended_by_signals
from cpubound.errors import CpuboundError
from cpubound.foreign import visible

COMMANDS = {
    "calibrate": "Measure this machine, and llama.cpp on it.",
    "show": "Print a saved profile again.",
    "predict": "Say how fast a model will decode.",
    "validate": "Run llama.cpp and show predicted beside observed.",
    "tune": "Choose threads and settings for a model.",
    "diagnose": "Say why a model runs as fast as it does.",
    "breakdown": "Measure where the time of a token goes, part by part.",
    "inspect": "Show the bytes a model reads for each token.",
    "doctor": "Show what this machine is, and what slows it.",
    "compare": "Compare two profiles.",
    "roofline": "Show what binds on a roofline, here or on a named machine.",
    "report": "Write a page with charts of this machine and of models on it.",
    "synth": "Write a synthetic GGUF of a known shape.",
}
# EX_SOFTWARE of sysexits.h.
_OUR_MISTAKE = 70
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


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
    machine cannot do it; 70 a mistake of cpubound's own; 129, 130 or 143 ended by SIGHUP, SIGINT
    or SIGTERM.
    """
    # Taken out here, so that it works before and behind the command's name.
    debug = "--debug" in argv
    arguments = [argument for argument in argv if argument != "--debug"]
    accept_any_encoding()
    if debug:
        sys.excepthook = show_traceback
    if sys.stdout is None:
        return _fail("standard output is closed: give the result a place to go", 4)
    try:
        with ended_by_signals():
            result = group.main(arguments, prog_name="cpubound", standalone_mode=False)
        sys.stdout.flush()
    except CpuboundError as error:
        if debug:
            raise
        return _fail(str(error), error.exit_code)
    except click.UsageError as error:
        return _fail(error.format_message(), error.exit_code)
    except (KeyboardInterrupt, click.Abort) as error:
        ended = error if isinstance(error, Ended) else Ended()
        with suppress(OSError):  # its terminal may be gone
            say(f"cpubound: {ended.word}", err=True)
        return ended.exit_code
    except BrokenPipeError:
        _forget_stdout()
        return 128 + signal.SIGPIPE if hasattr(signal, "SIGPIPE") else 1
    except OSError as error:
        if debug:
            raise
        if error.filename is None:
            _forget_stdout()
        return _fail(_describe(error), 4 if error.errno in _NO_ROOM else 3)
    except MemoryError:
        if debug:
            raise
        return _fail("memory ran out: close other programs, or choose a smaller model", 4)
    except Exception as error:
        if debug:
            raise
        return _fail(_mistake(error), _OUR_MISTAKE)
    return result if isinstance(result, int) else 0


def _fail(text: str, code: int) -> int:
    """Say what is wrong in one line, whatever a name in it holds."""
    say(f"cpubound: error: {visible(' '.join(text.splitlines()))}", err=True)
    return code


def _mistake(error: Exception) -> str:
    """Name an error that nobody foresaw, and where it arose, so that it can be reported."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return (
        f"cpubound {__version__} made a mistake ({type(error).__name__}: {error}{where}): run it "
        "again with --debug and send what it prints to where you got cpubound"
    )


def _describe(error: OSError) -> str:
    where = "standard output" if error.filename is None else str(error.filename)
    return f"{error.strerror or error} ({where}): give another file or place"


def _forget_stdout() -> None:
    """Let what is left to flush go nowhere: its reader went away (`| head`) or has no room."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
