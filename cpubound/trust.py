"""Where code and settings may come from: what was named, never the folder the user stands in.

A downloaded model may have a ``msgspec.py`` or a ``llama-bench`` beside it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

_FOLDER_OF_THE_PACKAGE = Path(__file__).resolve().parents[1]
_LIBRARY = str(Path(os.__file__).parent)


def import_folders() -> list[str]:
    """Return where this process imports from, without the current folder.

    ``sys.path`` without what is relative, the current folder, and folders that ``PYTHONPATH``
    names relative to it. What ``PYTHONPATH`` names absolutely and what Python's installation
    brings (site-packages, the user's, editable installs) stays, and so does the folder that
    cpubound itself was imported from.
    """
    named = [Path(folder) for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    near = _resolve([Path(), *(folder for folder in named if not folder.is_absolute())])
    near -= _resolve(folder for folder in named if folder.is_absolute())
    near -= {_FOLDER_OF_THE_PACKAGE}
    # Python puts the current folder and PYTHONPATH first; its installation begins here.
    installed = sys.path.index(_LIBRARY) if _LIBRARY in sys.path else len(sys.path)
    return [
        folder
        for place, folder in enumerate(sys.path)
        if Path(folder).is_absolute() and (place >= installed or Path(folder).resolve() not in near)
    ]


def find_program(name: str) -> Path | None:
    """Find a program in the folders that PATH names absolutely, None if there is none."""
    for folder in _search_folders():
        for file_name in (name, f"{name}.exe"):
            found = shutil.which(folder / file_name)
            if found is not None:
                return Path(found)
    return None


def forget_current_folder() -> None:
    """Import and start nothing from the current folder in the rest of this process."""
    sys.path[:] = import_folders()
    if "PATH" in os.environ:
        os.environ["PATH"] = os.pathsep.join(map(str, _search_folders()))


def _search_folders() -> list[Path]:
    folders = map(Path, os.environ.get("PATH", os.defpath).split(os.pathsep))
    return [folder for folder in folders if folder.is_absolute()]


def _resolve(folders: Iterable[Path]) -> set[Path]:
    try:
        return {folder.resolve() for folder in folders}
    except FileNotFoundError:
        # The current folder was removed: nothing can be imported from it.
        return set()
