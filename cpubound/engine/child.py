"""One child process that answers requests: started when needed, replaced after a crash."""

from __future__ import annotations

import atexit
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from typing import IO

import msgspec

from cpubound.engine import processes, protocol
from cpubound.errors import (
    EngineCrashed,
    EngineUnavailable,
    MachineError,
    ModelFileError,
    UsageError,
)

INSTALL = "pip install 'cpubound[engine]'"
WORKER_COMMAND = processes.python_command(
    "from cpubound.engine.worker import main; sys.exit(main())"
)
_FAILURES = {
    "model_file": ModelFileError,
    "usage": UsageError,
    "machine": MachineError,
}
_LOG_TAIL_BYTES = 4096
# How long a worker that closed its answers has to end by itself and say how.
_END_S = 10.0
_SOURCE_LINE = re.compile(r"\S+\.(c|h|cpp):\d+: ")


class ChildProcess:
    """Sends requests to a worker and waits for its answers.

    Parameters: the worker's command; ``timeout_s``, after which a worker that does not
    answer is ended (None waits for ever).
    """

    def __init__(
        self, command: Sequence[str] = WORKER_COMMAND, *, timeout_s: float | None = None
    ) -> None:
        self._command = tuple(command)
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._kills: processes.MemoryKills | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the running worker, None when there is none."""
        return self._process.pid if self._process else None

    def ask(self, request: protocol.Request) -> protocol.Reply:
        """Send one request and return its reply.

        Raises what the worker's failure names; ``EngineCrashed`` when it ended, or
        answered what is no reply. The next call starts a new worker.
        """
        process = self._start()
        assert process.stdin is not None and process.stdout is not None
        timed_out = threading.Event()
        timer = None
        if self._timeout_s is not None:
            timer = threading.Timer(self._timeout_s, _end, (process, timed_out))
            timer.start()
        try:
            process.stdin.write(protocol.encode_line(request))
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = b""
        except BaseException:
            # Interrupted in between: what the worker is at is unknown.
            self.close()
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if timed_out.is_set():
            self.close()
            raise EngineCrashed(
                f"the engine did not answer ({self._timeout_s:g} s): "
                "use a smaller model or a shorter run"
            )
        if not line.endswith(b"\n"):
            raise self._crash(process)
        return self._read(line)

    def close(self) -> None:
        """End the worker, if it runs, and wait until it is gone.

        What an interrupt cuts short here is done by the next call, at the latest at exit.
        """
        process = self._process
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    _close_pipe(pipe)
            self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None
        atexit.unregister(self.close)

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is not None:
            return self._process
        atexit.register(self.close)
        # A file, not a pipe: nobody has to read along, and after a crash it is all there.
        self._kills = processes.MemoryKills()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                cwd=processes.FOLDER,
                # Without it an assertion starts a debugger.
                env=processes.python_environment(GGML_NO_BACKTRACE="1"),
                # Ctrl-C is for the parent: it decides what becomes of the worker.
                start_new_session=True,
            )
        except OSError as error:
            self.close()
            raise EngineUnavailable(
                f"the engine's process cannot be started ({error.strerror}): {INSTALL}"
            ) from error
        return self._process

    def _read(self, line: bytes) -> protocol.Reply:
        try:
            reply = protocol.REPLY_DECODER.decode(line)
        except msgspec.MsgspecError as error:
            self.close()
            shown = line[:80].decode("utf-8", "replace").strip()
            raise EngineCrashed(
                f"the engine answered what is no reply ({shown!r}): install it again with {INSTALL}"
            ) from error
        if isinstance(reply, protocol.Failure):
            if reply.kind == "unavailable":
                self.close()
                raise EngineUnavailable(
                    f"llama-cpp-python cannot be imported ({reply.message}): {INSTALL}"
                )
            raise _FAILURES.get(reply.kind, MachineError)(reply.message)
        return reply

    def _crash(self, process: subprocess.Popen[bytes]) -> EngineCrashed:
        try:
            code = process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        killed = self._kills.explain(code) if self._kills is not None else None
        last_line = self._last_log_line()
        self.close()
        return EngineCrashed(
            f"llama.cpp ended inside a run ({killed or _describe_exit(code)}; last words: "
            f"{last_line or 'none'}): try a smaller model or context, or leave this setting out"
        )

    def _last_log_line(self) -> str:
        if self._log is None:
            return ""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _LOG_TAIL_BYTES))
        lines = self._log.read().decode("utf-8", "replace").splitlines()
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        # An assertion begins with the path of a source file on the machine that built it.
        return last.rsplit("/", 1)[-1] if _SOURCE_LINE.match(last) else last


def _end(process: subprocess.Popen[bytes], timed_out: threading.Event) -> None:
    timed_out.set()
    process.kill()


def _close_pipe(pipe: IO[bytes]) -> None:
    try:
        pipe.close()
    except BrokenPipeError:
        # A request that the worker never read.
        return


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
