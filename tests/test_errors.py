from __future__ import annotations

import pytest

from cpubound import errors


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.CheckFailed, 1),
        (errors.UsageError, 2),
        (errors.InputError, 3),
        (errors.ModelFileError, 3),
        (errors.ProfileError, 3),
        (errors.MachineError, 4),
        (errors.EngineUnavailable, 4),
        (errors.EngineCrashed, 4),
        (errors.KernelsUnavailable, 4),
        (errors.IsaUnavailable, 4),
    ],
)
def test_every_error_has_the_exit_code_of_its_kind(kind: type[Exception], code: int) -> None:
    assert issubclass(kind, errors.CpuboundError)
    assert kind.exit_code == code  # type: ignore[attr-defined]
