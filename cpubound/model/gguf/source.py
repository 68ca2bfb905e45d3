"""Where the bytes of a model file come from: a local file, or anything read by ranges."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import TracebackType
from typing import Protocol

from cpubound.errors import ModelFileError


class NoSuchFile(ModelFileError):
    """There is no file of that name: of a split model, a shard is missing."""


class Source(Protocol):
    """Bytes with a name: a file, or a remote file read by ranges."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int | None: ...

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes from ``offset``: fewer than ``length`` only at the end."""
        ...


class FileSource:
    """A local file as a ``Source``; use it in a ``with`` block.

    Raises ``ModelFileError`` if there is no such file, it is not a file, or unreadable.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.name = os.fspath(path)
        try:
            kind = Path(self.name).stat().st_mode
            if stat.S_ISDIR(kind):
                raise ModelFileError(f"this is a folder ({self.name}): give a .gguf file in it")
            if not stat.S_ISREG(kind):
                raise ModelFileError(f"this is a device or a pipe ({self.name}): give a file")
            self._file = Path(self.name).open("rb", buffering=0)  # noqa: SIM115
            self.size = os.fstat(self._file.fileno()).st_size
        except (FileNotFoundError, NotADirectoryError):
            raise NoSuchFile(f"no such file ({self.name}): check the path") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ModelFileError(
                f"the file cannot be opened ({self.name!r}, {reason}): check its name and rights"
            ) from None

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes from ``offset``: fewer than ``length`` only at the end."""
        try:
            self._file.seek(offset)
            parts = []
            while length > 0:
                part = self._file.read(length)
                if not part:
                    break
                parts.append(part)
                length -= len(part)
        except OSError as error:
            raise ModelFileError(
                f"the file cannot be read ({self.name}, {error.strerror}): check the disk"
            ) from None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def __enter__(self) -> FileSource:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
