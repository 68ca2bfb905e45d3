"""Files being made: whole when they appear, and removed with a run that does not finish them.

Every file that cpubound writes for somebody is written here. Their owner holds a lock for as
long as it lives, so what can be locked was left behind, and a later run removes it. Where the
system has no such locks (Windows) nothing is taken for left behind.
"""

from __future__ import annotations

import atexit
import errno
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
_PART = re.compile(rf"\.cpubound-{_TOKEN}\.part")


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


def write_file(target: Path, data: bytes, *, replace: bool = True) -> None:
    """Write a whole file; parameters and errors as of ``partial_file``."""
    with partial_file(target, replace=replace) as output:
        output.write(data)


def check_place(target: Path) -> None:
    """Raise the ``OSError`` that writing a file there would end in, as far as it can be told."""
    target = Path(os.path.realpath(target))
    _status(target)
    with tempfile.TemporaryFile(dir=target.parent):
        pass


@contextmanager
def partial_file(target: Path, *, replace: bool = True) -> Iterator[BinaryIO]:
    """Give a file that takes the target's place when it is complete, and is removed otherwise.

    It lies in the target's folder, so that taking its place is one step, and is on the disk
    before it does. A link is followed: the file it leads to is replaced. What is replaced
    leaves its permissions and owner. Parts in that folder that killed runs left are removed.

    Raises
    ------
    OSError : it cannot be written; what stands there may not be written, or is no regular file.
    FileExistsError : ``replace`` is not set, and a file stands there in the end.
    """
    target = Path(os.path.realpath(target))
    before = _status(target)
    _for_each_left_behind(target.parent, _PART, _reclaim_file)
    while True:
        # The name of the target would make one that is too long of one that just fits.
        path = target.with_name(f".cpubound-{secrets.token_hex(8)}.part")
        with _removed_in_the_end(partial(path.unlink, missing_ok=True)):
            output = _create_locked(path)
            if output is None:
                continue
            with output:
                yield output
                output.flush()
                # Else the system writes it back later: while the model is being timed, or never.
                os.fsync(output.fileno())
                if before is not None:
                    _give_status(path, before)
                if fcntl is None:
                    output.close()  # Windows renames no open file
                if replace:
                    path.replace(target)
                else:
                    _take_free_place(path, target)
                _sync_folder(target.parent)
                return


def _status(target: Path) -> os.stat_result | None:
    """Return the status of the file that would be replaced, None if there is none."""
    try:
        status = target.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(target))
    # Renaming asks only for the folder: a file that was made read-only would be gone.
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
    return status


def _give_status(path: Path, status: os.stat_result) -> None:
    with suppress(OSError):
        if hasattr(os, "chown"):
            os.chown(path, status.st_uid, status.st_gid)
    with suppress(OSError):
        path.chmod(stat.S_IMODE(status.st_mode))


def _take_free_place(path: Path, target: Path) -> None:
    try:
        # Unlike renaming, linking replaces nothing.
        os.link(path, target)
    except FileExistsError:
        raise
    except OSError:
        # A file system without hard links: a file that another program makes just now is lost.
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
        path.replace(target)


def _sync_folder(folder: Path) -> None:
    """Put a folder's new entry on the disk, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


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
