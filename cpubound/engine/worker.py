"""The engine's child process: reads requests on stdin, answers on what was stdout.

llama.cpp writes to both standard streams and ends the process when an assertion fails;
OpenMP reads its environment once; a pinned process stays pinned. So it lives here, and
only what this module reaches imports ``llama_cpp``.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from cpubound.engine import protocol
from cpubound.engine.processes import offer_to_be_killed
from cpubound.errors import CpuboundError, MachineError, ModelFileError, UsageError

if TYPE_CHECKING:
    from cpubound.engine.session import Session


def serve(requests: Iterable[bytes], replies: BinaryIO) -> None:
    """Answer requests in turn."""
    session: Session | None = None
    for line in requests:
        reply: protocol.Reply
        try:
            request = protocol.REQUEST_DECODER.decode(line)
            if session is None:
                session = _open_session()
            session.log.errors.clear()
            reply = _answer(session, request)
        except _BindingMissing as error:
            reply = protocol.Failure(kind="unavailable", message=str(error))
        except (CpuboundError, MemoryError, msgspec.MsgspecError) as error:
            reply = protocol.Failure(kind=_kind_of(error), message=str(error) or repr(error))
        replies.write(protocol.encode_line(reply))
        replies.flush()


class _BindingMissing(Exception):
    """llama_cpp cannot be imported."""


def _open_session() -> Session:
    try:
        from cpubound.engine.session import Session
    except (ImportError, OSError, RuntimeError) as error:
        raise _BindingMissing(str(error)) from error
    return Session()


def _answer(session: Session, request: protocol.Request) -> protocol.Reply:
    from cpubound.engine import library

    match request:
        case protocol.Identify():
            return protocol.Identity(identity=library.read_identity())
        case protocol.Run():
            return session.run(request.settings, prefill=request.prefill)
        case protocol.Rotate():
            return session.rotate(request.runs, passes=request.passes, seed=request.seed)
        case protocol.CountGraph():
            return protocol.Counted(count=session.count_graph(request.settings))
        case protocol.TimeParts():
            times = session.time_parts(request.settings, by_operator=request.by_operator)
            return protocol.TimedParts(times=times)
        case protocol.Quantize():
            return protocol.Blocks(data=library.quantize(request))
        case protocol.CloseModel():
            session.close_model(request.model_path)
            return protocol.Done()


def _kind_of(error: BaseException) -> str:
    match error:
        case ModelFileError():
            return "model_file"
        case UsageError() | msgspec.MsgspecError():
            return "usage"
        case MachineError() | MemoryError():
            return "machine"
        case _:
            return "other"


def main() -> int:
    """Take the two standard streams for the protocol and give llama.cpp others."""
    offer_to_be_killed()
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    reader = threading.Thread(
        target=_read_requests, args=(os.fdopen(os.dup(0), "rb"), requests), daemon=True
    )
    replies = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    reader.start()
    serve(iter(requests.get, b""), replies)
    return 0


def _read_requests(pipe: BinaryIO, requests: queue.SimpleQueue[bytes]) -> None:
    """Hand on requests; end the process, in whatever it is, when the parent's end is closed.

    The system closes it for a parent that was killed. A thread that waits costs no time.
    """
    for line in pipe:
        requests.put(line)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
