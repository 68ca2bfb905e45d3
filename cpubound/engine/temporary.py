"""Files of one run: removed with it, or by a later run if this one was killed.

Their owner holds a lock for as long as it lives, so what can be locked was left behind. Where
the system has no such locks (Windows) nothing is taken for left behind.
"""

from __future__ import annotations

import atexit
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

_PREFIX = "cpubound-models-"
_LOCK = ".owner"
_TOKEN = "[0-9a-f]{16}"


@contextmanager
def model_folder(parent: Path | None = None) -> Iterator[Path]:
    """Give an empty folder for models, without sub-folders; remove it, and what is in it."""
    root = Path(tempfile.gettempdir()) if parent is None else parent
    _for_each_left_behind(root, re.compile(_PREFIX + _TOKEN), _reclaim_folder)
    while True:
        folder = root / (_PREFIX + secrets.token_hex(8))
        with _removed_in_the_end(partial(_remove_folder, folder)):
            folder.mkdir(mode=0o700)
            try:
                lock = _create_locked(folder / _LOCK)
            except FileNotFoundError:
                # Another run took the empty folder for one left behind.
                continue
            if lock is None:
                continue
            with lock:
                yield folder
                return


@contextmanager
def partial_file(target: Path) -> Iterator[BinaryIO]:
    """Give a file that takes the target's place when it is complete, and is removed otherwise.

    Parts of the same target that killed runs left behind are removed.
    """
    pattern = re.compile(rf"\.{re.escape(target.name)}\.{_TOKEN}\.part")
    _for_each_left_behind(target.parent, pattern, _reclaim_file)
    while True:
        path = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
        with _removed_in_the_end(partial(path.unlink, missing_ok=True)):
            output = _create_locked(path)
            if output is None:
                continue
            with output:
                yield output
                output.flush()
                # Else the system writes it back later, while the model is being timed.
                os.fsync(output.fileno())
                if fcntl is None:
                    output.close()  # Windows renames no open file
                path.replace(target)
                return


@contextmanager
def _removed_in_the_end(remove: Callable[[], None]) -> Iterator[None]:
    """Remove what is not made yet at the end, or at exit if an interrupt came in between."""
    atexit.register(remove)
    try:
        yield
    finally:
        remove()
        atexit.unregister(remove)


def _create_locked(path: Path) -> BinaryIO | None:
    """Create a file and lock it; None if another run removed it before it was locked."""
    file = path.open("xb")
    if fcntl is not None:
        # A file system without locks is none to fail over: nobody else can lock there either.
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        if not os.fstat(file.fileno()).st_nlink:
            file.close()
            return None
    return file


def _for_each_left_behind(
    root: Path, pattern: re.Pattern[str], reclaim: Callable[[Path], None]
) -> None:
    """Try to reclaim what has such a name and is the user's own; a failure leaves it there."""
    if fcntl is None:
        return
    with suppress(OSError):
        for path in list(root.iterdir()):
            if pattern.fullmatch(path.name):
                with suppress(OSError):
                    if path.lstat().st_uid == os.getuid():
                        reclaim(path)


def _reclaim_folder(folder: Path) -> None:
    if not stat.S_ISDIR(folder.lstat().st_mode):
        return
    try:
        with _lock_existing(folder / _LOCK):
            _remove_folder(folder)
    except FileNotFoundError:
        folder.rmdir()


def _reclaim_file(path: Path) -> None:
    with _lock_existing(path):
        path.unlink(missing_ok=True)


def _lock_existing(path: Path) -> BinaryIO:
    """Lock a file that is there; raises ``BlockingIOError`` while its owner lives."""
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW), "rb+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file


def _remove_folder(folder: Path) -> None:
    """Remove a folder, its lock last: a later run can go on where this one was killed."""
    with suppress(FileNotFoundError):
        for path in sorted(folder.iterdir(), key=lambda path: path.name == _LOCK):
            path.unlink(missing_ok=True)
        folder.rmdir()
