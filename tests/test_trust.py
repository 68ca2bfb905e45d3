"""Code and settings come from where they were named, never from the current folder."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from fakes import tiny_model

import cpubound
from cpubound.engine import find_runner
from cpubound.engine.processes import python_command, python_environment
from cpubound.engine.synth import write_model
from cpubound.trust import find_program, forget_current_folder, import_folders

SITE = sysconfig.get_paths()["purelib"]
LIBRARY = str(Path(os.__file__).parent)
# Python 3.10 has no -P; what it does instead works on every Python.
WAYS = [(), ("-P",)] if sys.version_info >= (3, 11) else [()]
# What the worker, the standard library under it and llama.cpp's binding import.
IMPORTED = ("msgspec", "numpy", "llama_cpp", "typing", "queue", "linecache", "ctypes", "psutil")


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: it holds modules that leave a mark when they are imported."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    for name in IMPORTED:
        (folder / f"{name}.py").write_text(
            f"open({str(tmp_path / 'mark')!r}, 'a').write('{name} ')\nraise ImportError('hostile')"
        )
    monkeypatch.chdir(folder)
    return folder


def executed(tmp_path: Path) -> str:
    mark = tmp_path / "mark"
    return mark.read_text() if mark.exists() else ""


def run_script(folder: Path, code: str, *arguments: str) -> str:
    """Run a script that lies elsewhere, as an installed program does."""
    script = folder / "program.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class TestImportFolders:
    def test_the_current_folder_is_left_out_however_it_is_named(
        self, hostile: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "path", ["", str(hostile), ".", LIBRARY, SITE, ""])
        monkeypatch.delenv("PYTHONPATH", raising=False)
        assert import_folders() == [LIBRARY, SITE]

    def test_what_pythonpath_names_relative_to_it_is_left_out(
        self, hostile: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        named = [str(hostile), str(hostile / "lib"), "/opt/lib"]
        monkeypatch.setattr(sys, "path", [*named, LIBRARY])
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "lib", "/opt/lib"]))
        assert import_folders() == ["/opt/lib", LIBRARY]

    def test_what_pythonpath_names_absolutely_stays_even_where_the_user_stands(
        self, hostile: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "path", [str(hostile), LIBRARY])
        monkeypatch.setenv("PYTHONPATH", str(hostile))
        assert import_folders() == [str(hostile), LIBRARY]

    def test_what_the_installation_brings_stays_even_where_the_user_stands(
        self, hostile: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "path", [str(hostile), LIBRARY, SITE, str(hostile)])
        monkeypatch.delenv("PYTHONPATH", raising=False)
        assert import_folders() == [LIBRARY, SITE, str(hostile)]

    def test_the_folder_that_this_package_came_from_stays(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        checkout = str(Path(cpubound.__file__).resolve().parents[1])
        monkeypatch.chdir(checkout)
        monkeypatch.setattr(sys, "path", [checkout, LIBRARY])
        monkeypatch.delenv("PYTHONPATH", raising=False)
        assert import_folders() == [checkout, LIBRARY]

    def test_a_current_folder_that_was_removed_is_no_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gone = tmp_path / "gone"
        gone.mkdir()
        monkeypatch.chdir(gone)
        monkeypatch.setattr(sys, "path", ["", LIBRARY])
        gone.rmdir()
        assert import_folders() == [LIBRARY]


class TestChildren:
    @pytest.mark.parametrize("flags", WAYS, ids=" ".join)
    def test_a_module_beside_a_model_is_not_executed(
        self, hostile: Path, tmp_path: Path, flags: tuple[str, ...]
    ) -> None:
        said = run_script(
            tmp_path,
            "from cpubound.engine.child import WORKER_COMMAND, ChildProcess\n"
            "from cpubound.engine.protocol import Identify\n"
            "from cpubound.errors import EngineUnavailable\n"
            "import sys\n"
            "plain = [part for part in WORKER_COMMAND[1:] if part != '-P']\n"
            "child = ChildProcess((WORKER_COMMAND[0], *sys.argv[1:], *plain))\n"
            "try:\n"
            "    print('answered', child.ask(Identify()))\n"
            "except EngineUnavailable as error:\n"
            "    print('answered', error)\n"
            "child.close()\n",
            *flags,
        )
        assert said.startswith("answered")
        assert "hostile" not in said
        assert executed(tmp_path) == ""

    def test_the_program_forgets_the_folder_that_python_m_puts_first(
        self, hostile: Path, tmp_path: Path
    ) -> None:
        for name in ("typing", "queue", "linecache", "ctypes"):
            (hostile / f"{name}.py").unlink()  # Python's own are imported before ours
        done = subprocess.run(
            [sys.executable, "-m", "cpubound", "inspect", "llama-3.2-1b"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, executed(tmp_path)) == (0, ""), done.stderr

    def test_a_child_imports_from_where_this_process_may(
        self, hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        vendored = tmp_path / "vendored"
        vendored.mkdir()
        (vendored / "of_the_user.py").write_text("WORD = 'found'")
        monkeypatch.setattr(sys, "path", [str(vendored), *sys.path])
        done = subprocess.run(
            python_command("import of_the_user, cpubound.trust; print(of_the_user.WORD)"),
            env=python_environment(), capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout == "found\n"

    @pytest.mark.engine
    @pytest.mark.skipif(find_runner() is None, reason="needs the extra 'engine'")
    def test_a_model_named_from_the_current_folder_is_found_and_nothing_else_there(
        self, hostile: Path, tmp_path: Path
    ) -> None:
        write_model(tiny_model("F16"), hostile / "model.gguf")
        said = run_script(
            tmp_path,
            "from cpubound.__main__ import run; run()",
            *("inspect", "model.gguf", "--verify"),
        )
        assert "written" in said
        assert executed(tmp_path) == ""


@pytest.mark.skipif(os.name != "posix", reason="makes a program of a script")
class TestPrograms:
    @staticmethod
    def program(folder: Path) -> Path:
        folder.mkdir(exist_ok=True)
        path = folder / "llama-bench"
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return path

    @pytest.mark.parametrize("entry", ["", ".", "nearby"])
    def test_a_program_is_not_looked_for_near_the_user(
        self, hostile: Path, monkeypatch: pytest.MonkeyPatch, entry: str
    ) -> None:
        self.program(hostile)
        self.program(hostile / "nearby")
        monkeypatch.setenv("PATH", entry)
        assert find_program("llama-bench") is None

    def test_a_program_is_found_in_a_folder_that_path_names(
        self, hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.program(hostile)
        there = self.program(tmp_path / "bin")
        monkeypatch.setenv("PATH", os.pathsep.join(["", ".", str(there.parent)]))
        assert find_program("llama-bench") == there
        monkeypatch.setattr(sys, "path", sys.path[:])
        forget_current_folder()
        assert os.environ["PATH"] == str(there.parent)
