"""Models of a run go with it, and those of a run that was killed with a later one."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cpubound import temporary
from cpubound.temporary import check_place, model_folder, partial_file, write_file

pytestmark = pytest.mark.skipif(temporary.fcntl is None, reason="this system has no such locks")

# Makes what is named, says so, and waits to be killed.
OWNER = """
import sys
from pathlib import Path
from cpubound.temporary import model_folder, partial_file
place = Path(sys.argv[2])
with model_folder(place) if sys.argv[1] == "folder" else partial_file(place / "x.gguf") as made:
    if sys.argv[1] == "folder":
        (made / "0-model.gguf").write_bytes(b"GGUF")
    print("made", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def owner(tmp_path: Path):
    """Start a process that holds a folder or a part of a file."""
    processes = []

    def start(kind: str) -> subprocess.Popen[str]:
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", OWNER, kind, str(tmp_path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        assert processes[-1].stdout is not None
        assert processes[-1].stdout.readline() == "made\n"
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_goes_with_what_is_in_it(tmp_path: Path) -> None:
    with model_folder(tmp_path) as folder:
        assert folder.parent == tmp_path
        (folder / "model.gguf").write_bytes(b"GGUF")
    assert names(tmp_path) == []


def test_the_folder_of_a_run_that_was_killed_goes_with_a_later_run(owner, tmp_path: Path) -> None:
    killed = owner("folder")
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert len(names(tmp_path)) == 1
    with model_folder(tmp_path) as folder:
        assert names(tmp_path) == [folder.name]
    assert names(tmp_path) == []


def test_the_folder_of_a_run_that_lives_stays(owner, tmp_path: Path) -> None:
    alive = owner("folder")
    before = names(tmp_path)
    with model_folder(tmp_path):
        assert set(before) < set(names(tmp_path))
    assert names(tmp_path) == before
    alive.communicate("")
    assert names(tmp_path) == []


def test_a_folder_without_a_lock_is_reclaimed_only_when_it_is_empty(tmp_path: Path) -> None:
    token = "0123456789abcdef"
    empty = tmp_path / f"cpubound-models-{token}"
    full = tmp_path / f"cpubound-models-{token[::-1]}"
    empty.mkdir()
    full.mkdir()
    (full / "mine.gguf").touch()
    with model_folder(tmp_path):
        pass
    assert names(tmp_path) == [full.name]
    assert names(full) == ["mine.gguf"]


@pytest.mark.parametrize("name", ["cpubound-models-mine", "cpubound-0123456789abcdef", "models"])
def test_what_has_another_name_is_not_touched(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / ".owner").touch()
    with model_folder(tmp_path):
        pass
    assert names(tmp_path) == [name]


def test_a_link_to_a_folder_is_not_followed(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / ".owner").touch()
    (tmp_path / "place").mkdir()
    link = tmp_path / "place" / "cpubound-models-0123456789abcdef"
    link.symlink_to(mine)
    with model_folder(link.parent):
        pass
    assert link.is_symlink()
    assert names(mine) == [".owner"]


def test_a_removal_that_was_cut_short_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = OSError("cut short")
    unlink, done = Path.unlink, []

    def unlink_one(path: Path, missing_ok: bool = False) -> None:
        if done:
            raise killed
        done.append(path.name)
        unlink(path, missing_ok=missing_ok)

    with pytest.raises(OSError, match="cut short"), model_folder(tmp_path) as folder:
        for number in range(3):
            (folder / f"{number}.gguf").touch()
        monkeypatch.setattr(Path, "unlink", unlink_one)
    monkeypatch.undo()
    assert ".owner" not in done
    with model_folder(tmp_path):
        pass
    assert names(tmp_path) == []


def test_a_file_takes_its_place_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "x.gguf"
    target.write_bytes(b"old")
    with partial_file(target) as output:
        output.write(b"new")
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new"
    assert names(tmp_path) == ["x.gguf"]


def test_a_file_that_failed_leaves_the_old_one_and_no_part(tmp_path: Path) -> None:
    target = tmp_path / "x.gguf"
    target.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), partial_file(target) as output:
        output.write(b"new")
        raise KeyboardInterrupt
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["x.gguf"]


def test_the_part_of_a_run_that_was_killed_goes_with_the_next_in_that_folder(
    owner, tmp_path: Path
) -> None:
    alive, killed = owner("part"), owner("part")
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    (tmp_path / ".cpubound-mine.part").touch()
    with partial_file(tmp_path / "x.gguf"):
        parts = [name for name in names(tmp_path) if re.fullmatch(r"\.cpubound-.{16}\.part", name)]
        assert len(parts) == 2  # of the one that lives, and ours
    alive.kill()
    alive.wait()
    with partial_file(tmp_path / "x.gguf"):
        pass
    assert names(tmp_path) == [".cpubound-mine.part", "x.gguf"]


def test_a_part_is_not_written_through_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "x.gguf"
    monkeypatch.setattr(temporary.secrets, "token_hex", lambda _: "0123456789abcdef")
    (tmp_path / ".cpubound-0123456789abcdef.part").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError), partial_file(target):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link, target = tmp_path / "link", tmp_path / "elsewhere" / "x"
    link.symlink_to(Path("elsewhere") / "x")
    write_file(link, b"made")  # it leads nowhere yet
    write_file(link, b"replaced")
    assert link.is_symlink()
    assert target.read_bytes() == b"replaced"
    assert names(tmp_path / "elsewhere") == ["x"]


def test_what_replaces_a_file_has_its_permissions(tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.write_bytes(b"old")
    target.chmod(0o640)
    write_file(target, b"new")
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"new", 0o640)


def test_a_file_that_appeared_meanwhile_is_not_replaced_unasked(tmp_path: Path) -> None:
    target = tmp_path / "x"
    with pytest.raises(FileExistsError), partial_file(target, replace=False) as output:
        output.write(b"mine")
        target.write_bytes(b"theirs")
    assert target.read_bytes() == b"theirs"
    assert names(tmp_path) == ["x"]


def test_a_new_file_is_made_where_there_are_no_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    write_file(tmp_path / "x", b"made", replace=False)
    assert (tmp_path / "x").read_bytes() == b"made"
    with pytest.raises(FileExistsError):
        write_file(tmp_path / "x", b"again", replace=False)
    assert (tmp_path / "x").read_bytes() == b"made"


def test_a_name_as_long_as_the_system_allows_can_be_written(tmp_path: Path) -> None:
    target = tmp_path / ("x" * 255)
    write_file(target, b"made")
    assert names(tmp_path) == [target.name]


def test_what_is_no_file_or_has_no_folder_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path, tmp_path / "pipe", tmp_path / "none" / "x"):
        with pytest.raises(OSError, match=r"regular|No such"):
            check_place(place)
        with pytest.raises(OSError, match=r"regular|No such"):
            write_file(place, b"x")
    assert names(tmp_path) == ["pipe"]


# The kinds of file that a user without rights meets; root may do anything.
AS_NOBODY = """
import os, sys
from pathlib import Path
from cpubound.temporary import write_file
os.setuid(65534)
try:
    write_file(Path(sys.argv[1]), b"new")
except PermissionError as error:
    print(error.strerror)
"""


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another user"
)
def test_a_file_that_was_made_read_only_is_not_replaced(tmp_path: Path) -> None:
    place = tmp_path / "x"
    place.write_bytes(b"old")
    place.chmod(0o444)
    os.chown(place, 65534, 65534)
    for folder in (tmp_path, *tmp_path.parents):
        folder.chmod(folder.stat().st_mode | 0o011)
    tmp_path.chmod(0o777)
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(place)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "Permission denied\n"
    assert place.read_bytes() == b"old"
