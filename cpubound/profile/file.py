"""The versioned file that keeps a profile: where it lies, writing and reading it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import msgspec

from cpubound import bounds
from cpubound.errors import MachineError, ProfileError, UsageError
from cpubound.foreign import as_unicode, show_values
from cpubound.profile.values import SCHEMA, SCHEMA_NAME, SCHEMA_VERSION, MachineProfile
from cpubound.temporary import check_place, write_file


def profile_document(profile: MachineProfile) -> dict[str, Any]:
    """Return the profile as the JSON document ``cpubound.profile/2``."""
    document: dict[str, Any] = show_values(msgspec.to_builtins(profile), as_unicode)
    for name in ("bandwidth", "placements", "nodes"):
        for row, measurement in zip(document[name], getattr(profile, name), strict=True):
            row["best_bytes_per_s"] = measurement.best_bytes_per_s
            row["median_bytes_per_s"] = measurement.median_bytes_per_s
    return document


def default_profile_folder() -> Path:
    """Return where profiles are kept: ``CPUBOUND_HOME``, or the platform's data folder."""
    from platformdirs import user_data_path

    home = os.environ.get("CPUBOUND_HOME")
    return Path(home) if home else user_data_path("cpubound", appauthor=False)


def default_profile_path() -> Path:
    """Return the newest profile of this machine's folder: the one commands use."""
    return default_profile_folder() / "profile.json"


def check_writable(path: Path) -> None:
    """Raise MachineError if a profile could not be saved here; creates the folder."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        check_place(path)
    except OSError as error:
        raise MachineError(
            f"the profile cannot be saved ({path}: {error.strerror}): "
            "give another place with --out FILE"
        ) from error


def profile_bytes(profile: MachineProfile) -> bytes:
    """Return what a profile's file holds."""
    return msgspec.json.format(msgspec.json.encode(profile_document(profile)), indent=1) + b"\n"


def save_profile(profile: MachineProfile, path: Path, *, force: bool = True) -> None:
    """Write a profile so that a reader sees the old file or the new one, never half of one.

    Raises
    ------
    UsageError : the file exists and ``force`` is not set.
    MachineError : the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, profile_bytes(profile), replace=force)
    except FileExistsError as error:
        raise UsageError(f"{path} exists: give --force to replace it") from error
    except OSError as error:
        raise MachineError(
            f"the profile cannot be written ({path}: {error.strerror}): "
            "give another place with --out FILE"
        ) from error


def load_profile(path: str | Path | None = None) -> MachineProfile:
    """Read a profile: the given file, or the one of this machine.

    Raises
    ------
    ProfileError : missing, not a profile, of another schema, or with impossible values.
    """
    chosen = Path(path) if path is not None else default_profile_path()
    try:
        data = read_profile_file(chosen)
    except FileNotFoundError:
        if path is None:
            raise ProfileError(
                f"this machine has no profile yet ({chosen}): run `cpubound calibrate` first "
                "(about 2 minutes), or estimate from the CPU's name: "
                'cpubound predict MODEL --machine "ryzen 7 7840u"'
            ) from None
        raise ProfileError(f"there is no such profile ({chosen}): check the path") from None
    except OSError as error:
        raise ProfileError(f"the profile cannot be read ({chosen}: {error.strerror})") from error
    return decode_profile(data, str(chosen))


def read_profile_file(path: Path) -> bytes:
    """Read the bytes of a profile file; ``ProfileError`` for what cannot be one, or ``OSError``."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ProfileError(f"{path} is no cpubound profile (not a file): give a saved one")
    if status.st_size > bounds.PROFILE_BYTES:
        raise ProfileError(f"{path} is no cpubound profile (too large): calibrate again")
    return path.read_bytes()


def decode_profile(data: bytes, source: str) -> MachineProfile:
    """Check and decode the bytes of a profile file; ``source`` names it in errors."""
    remedy = "run `cpubound calibrate` again"
    try:
        head = msgspec.json.decode(data, type=ProfileHead)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProfileError(f"{source} is no cpubound profile ({error}): {remedy}") from error
    name, _, version = (head.schema or "").partition("/")
    if name != SCHEMA_NAME:
        raise ProfileError(f"{source} is no cpubound profile (schema {head.schema!r}): {remedy}")
    if version != str(SCHEMA_VERSION):
        raise ProfileError(
            f"{source} has schema {head.schema}, this cpubound reads {SCHEMA}: {remedy}"
        )
    try:
        profile = msgspec.json.decode(data, type=MachineProfile)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProfileError(f"{source} is damaged ({error}): {remedy}") from error
    _check_values(profile, source, remedy)
    return profile


class ProfileHead(msgspec.Struct):
    """What a profile of any version holds."""

    schema: str | None = None
    created: str | None = None


def _check_values(profile: MachineProfile, source: str, remedy: str) -> None:
    for row in (*profile.bandwidth, *profile.placements, *profile.nodes):
        if row.threads < 1 or row.bytes_per_pass < 1 or not row.samples_s:
            raise ProfileError(f"{source} is damaged (an empty measurement): {remedy}")
        if not all(0 < sample < 1e6 for sample in row.samples_s):
            raise ProfileError(f"{source} is damaged (impossible sample times): {remedy}")
