"""Which profile takes the place of another: more never gives way to less."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterator
from itertools import count
from pathlib import Path

import msgspec

from cpubound.errors import MachineError, ProfileError, UsageError
from cpubound.profile.file import (
    ProfileHead,
    decode_profile,
    default_profile_path,
    profile_bytes,
    read_profile_file,
    save_profile,
)
from cpubound.profile.values import MachineProfile
from cpubound.temporary import partial_file, write_file

ENGINE, CORES = "llama.cpp", "cores and caches"


def stages(profile: MachineProfile) -> frozenset[str]:
    """Return which stages a profile holds, besides that of memory, which none is without."""
    found = set()
    if profile.engine is not None and profile.engine.tables:
        found.add(ENGINE)
    if profile.levels or profile.working_sets or profile.peak or profile.barriers:
        found.add(CORES)
    return frozenset(found)


def keep_profile(
    profile: MachineProfile, path: Path | None = None, *, without: Collection[str] = ()
) -> Path:
    """Save a profile and return where: at its place, or beside it under its own date.

    It goes beside where what stands there holds a stage that this one lacks, or cannot be
    read. A profile that is replaced is kept under its date where it was this machine's, or
    where it may hold more.

    Parameters
    ----------
    path : its place; None for that of this machine.
    without : stages that were left out on purpose.

    Raises
    ------
    MachineError : the folder cannot be written.
    """
    place = default_profile_path() if path is None else path
    try:
        before = _stages_at(place)
        lost = None if before is None else before - stages(profile)
        if lost and not lost <= set(without):
            return _save_beside(profile, place)
        if lost or lost is None or path is None:
            _keep_older(place)
    except PermissionError:
        return _save_beside(profile, place)
    except OSError as error:
        raise MachineError(
            f"the older profile cannot be kept ({place}: {error.strerror}): "
            "give another place with --out FILE"
        ) from error
    save_profile(profile, place)
    return place


def refuse_less(place: Path, without: Collection[str]) -> None:
    """Raise, before anything is measured, if stages are to be left out that stand there.

    Raises
    ------
    UsageError : the profile at ``place`` holds one of them.
    """
    try:
        lost = (_stages_at(place) or frozenset()) & set(without)
    except OSError:
        return
    if lost:
        raise UsageError(
            f"the profile there holds what would be left out ({place}: {', '.join(sorted(lost))}): "
            "name another place with --out FILE, or give --force to replace it"
        )


def _stages_at(place: Path) -> frozenset[str] | None:
    """Return the stages of the profile at a place, None for what is none of this version."""
    try:
        return stages(decode_profile(read_profile_file(place), str(place)))
    except FileNotFoundError:
        return frozenset()
    except ProfileError:
        return None


def _keep_older(place: Path) -> None:
    """Keep a copy of what stands at a place under the date of its own."""
    if not place.is_file():
        return
    for name in _names_beside(place, _date_at(place)):
        if name.is_file() and name.read_bytes() == place.read_bytes():
            return
        try:
            with place.open("rb") as older, partial_file(name, replace=False) as copy:
                shutil.copyfileobj(older, copy)
        except FileExistsError:
            continue
        return


def _save_beside(profile: MachineProfile, place: Path) -> Path:
    for name in _names_beside(place, profile.created):
        try:
            write_file(name, profile_bytes(profile), replace=False)
        except FileExistsError:
            continue
        except OSError as error:
            raise MachineError(
                f"the profile cannot be written ({name}: {error.strerror}): "
                "give another place with --out FILE"
            ) from error
        return name
    raise AssertionError("there is always another name")


def _names_beside(place: Path, date: str) -> Iterator[Path]:
    stamp = re.sub(r"[^0-9A-Za-z]+", "-", date[:40]).strip("-")
    yield place.with_name(f"{place.stem}-{stamp}{place.suffix}")
    for number in count(2):
        yield place.with_name(f"{place.stem}-{stamp}-{number}{place.suffix}")


def _date_at(place: Path) -> str:
    """Return the date of a profile, of any version; of the file where it is damaged."""
    try:
        date = msgspec.json.decode(read_profile_file(place), type=ProfileHead).created
    except (msgspec.DecodeError, RecursionError, ProfileError):
        date = None
    return date or f"damaged-{int(place.stat().st_mtime)}"
