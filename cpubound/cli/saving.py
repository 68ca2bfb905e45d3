"""Saving what a calibration measured: never lost, whatever becomes of its place."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from cpubound.cli.output import keep_elsewhere
from cpubound.cli.terminal import say
from cpubound.cli.termination import signals_held
from cpubound.errors import CpuboundError, MachineError
from cpubound.foreign import visible
from cpubound.profile.file import check_writable, default_profile_path, profile_bytes
from cpubound.profile.keeping import keep_profile, refuse_less
from cpubound.profile.values import MachineProfile


class Save:
    """Saves a profile where it was asked for, and remembers what became of it.

    Parameters: ``out``, its place, None for that of this machine; ``without``, the stages that
    the user left out.
    """

    def __init__(self, out: str | None, *, without: Collection[str] = ()) -> None:
        self._path = None if out is None else Path(out)
        self._without = without
        self._error: CpuboundError | None = None
        self.place: Path | None = None

    @property
    def asked(self) -> Path:
        """The place that was asked for."""
        return default_profile_path() if self._path is None else self._path

    @property
    def sentence(self) -> str:
        """Where the profile is, as a sentence; empty if it could not be saved."""
        if self.place is None:
            return ""
        if self.place != self.asked:
            return f"Saved as {self.place}; {self.asked} holds more and stays."
        return (
            "Saved as the profile of this machine."
            if self._path is None
            else f"Saved as {self.place}."
        )

    def check_place(self, *, force: bool) -> None:
        """Raise before minutes are spent if the profile could not be saved, or as less."""
        check_writable(self.asked)
        if not force:
            refuse_less(self.asked, self._without)

    def __call__(self, profile: MachineProfile, is_complete: bool) -> None:
        """Save; an error waits for ``check``, when the result is printed.

        What ended early takes the place of nothing that holds more, whatever was left out.
        """
        without = self._without if is_complete else ()
        with signals_held():
            try:
                self.place = keep_profile(profile, self._path, without=without)
            except CpuboundError as error:
                kept = keep_elsewhere(profile_bytes(profile), ".json")
                self._error = MachineError(f"{error}; {kept}")

    def tell_early(self) -> None:
        """Say on stderr where that is which was measured before the end came."""
        if self._error is not None:
            say(f"cpubound: {visible(self._error)}", err=True)
        elif self.place is not None:
            say(f"cpubound: what was measured so far: {visible(self.sentence)}", err=True)

    def check(self) -> None:
        """Raise what saving failed with."""
        if self._error is not None:
            raise self._error
