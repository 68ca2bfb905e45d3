"""Imports point one way: each room may use the rooms listed here and no others."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from builders import build_engine, build_profile

import cpubound
from cpubound.profile.file import save_profile
from cpubound.units import GB

PACKAGE = Path(cpubound.__file__).parent
GROUND = {
    "errors",
    "units",
    "stats",
    "trust",
    "package_data",
    "llama_facts",
    "foreign",
    "bounds",
    "setting",
    "temporary",
}
ALLOWED = {
    "errors": set(),
    "units": set(),
    "stats": set(),
    "llama_facts": {"errors"},
    "foreign": {"bounds"},
    "bounds": set(),
    "setting": {"errors", "llama_facts"},
    "trust": set(),
    "temporary": set(),
    "package_data": set(),
    "machine": GROUND,
    "model": GROUND,
    "theory": GROUND | {"model"},
    "_kernels": set(),
    "kernels": GROUND | {"_kernels"},
    "profile": GROUND | {"machine", "kernels"},
    "engine": GROUND | {"machine", "model"},
    # Pure arithmetic; theory only for the memory that a what-if names.
    "cost": GROUND | {"model", "theory", "profile"},
    "measuring": GROUND | {"machine", "model", "kernels", "profile", "engine", "cost"},
    "validation": GROUND
    | {"machine", "model", "kernels", "profile", "engine", "cost", "measuring"},
    "advise": GROUND | {"machine", "model", "theory", "profile", "engine", "cost", "validation"},
    "report": GROUND
    | {
        "machine",
        "model",
        "theory",
        "kernels",
        "profile",
        "engine",
        "cost",
        "validation",
        "advise",
    },
    # The verbs as Python functions: everything but what prints or formats.
    "api": GROUND
    | {
        "machine",
        "model",
        "theory",
        "kernels",
        "profile",
        "engine",
        "measuring",
        "cost",
        "validation",
        "advise",
    },
    "cli": None,  # everything
    "__init__": None,  # re-exports, lazily
    "__main__": {"cli", "trust"},
}
# Outside packages that only one room may import.
ONLY_IN = {
    "llama_cpp": {"engine"},
    "tabulate": {"report"},
    "psutil": {"machine"},
    "gguf": set(),
    "rich": {"cli"},
    "click": {"cli"},
    "platformdirs": {"profile"},
    "altair": {"report"},
    "jinja2": {"report"},
    "vl_convert": {"report"},
}


def room_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imports_of(path: Path) -> list[tuple[str, int]]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import on line {node.lineno}"
            module = node.module or ""
            if module == "cpubound":
                found += [
                    (f"cpubound.{alias.name}", node.lineno)
                    for alias in node.names
                    if alias.name != "__version__"
                ]
            else:
                found.append((module, node.lineno))
    return found


SOURCES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_room_uses_only_the_rooms_below_it(path: Path) -> None:
    room = room_of(path)
    assert room in ALLOWED, f"{room} is not in the list of rooms"
    allowed = ALLOWED[room]
    for module, line in imports_of(path):
        parts = module.split(".")
        if parts[0] != "cpubound":
            owner = ONLY_IN.get(parts[0])
            assert owner is None or room in owner, f"{path}:{line}: {room} imports {parts[0]}"
        elif allowed is not None and len(parts) > 1 and parts[1] != room:
            assert parts[1] in allowed, f"{path}:{line}: {room} imports {module}"


def test_of_the_cost_model_only_what_if_uses_the_theory_of_the_field() -> None:
    users = {
        path.name
        for path in SOURCES
        if room_of(path) == "cost"
        and any(module.startswith("cpubound.theory") for module, _ in imports_of(path))
    }
    assert users == {"what_if.py"}


def test_scipy_is_used_by_the_two_fits_and_never_when_a_module_is_imported() -> None:
    users = set()
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(module.split(".")[0] == "scipy" for module, _ in imports_of(path)):
            users.add(path.relative_to(PACKAGE).as_posix())
        at_import = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = {alias.name for node in at_import for alias in node.names}
        names |= {node.module or "" for node in at_import if isinstance(node, ast.ImportFrom)}
        assert not any(name.split(".")[0] == "scipy" for name in names), path
    assert users == {"cost/fit.py", "cost/rate_fit.py"}


def test_every_room_in_the_list_exists() -> None:
    rooms = {room_of(path) for path in SOURCES} | {"_kernels"}
    assert rooms == set(ALLOWED)


# Ends a program: prints the modules of the package that were loaded.
PRINT_LOADED = "print(*(m for m in sys.modules if m.startswith('cpubound.')), file=sys.stderr)"
# Nothing is fitted to predict.
NOTHING_FITTED = "assert not {'numpy', 'scipy'} & {*sys.modules}"
# What `predict` needs of the rooms that measure are their values, and the machine's limits now.
PREDICTING = {"api", "cli", "cost", "machine", "model", "profile", "report", *GROUND} - {"trust"}


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )


def test_importing_the_package_and_the_command_line_imports_nothing_heavy() -> None:
    code = (
        "import sys, cpubound, cpubound.cli; "
        "heavy = ('numpy', 'scipy', 'psutil', 'tabulate', 'rich', 'llama_cpp', 'altair', "
        "'jinja2', 'vl_convert', 'cpubound._kernels'); "
        "print([m for m in heavy if m in sys.modules])"
    )
    assert run_python(code).stdout.strip() == "[]"


def test_importing_the_cost_model_loads_nothing_that_measures_or_advises() -> None:
    modules = [
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for path in SOURCES
        if room_of(path) == "cost" and path.name != "__init__.py"
    ]
    code = f"import sys, {', '.join(modules)}; {NOTHING_FITTED}; {PRINT_LOADED}"
    loaded = run_python(code).stderr.split()
    assert {*modules} <= {*loaded}
    unused = {"trust", "temporary", "foreign"}
    assert rooms_of(loaded) == {"cost", "model", "profile", "theory", *GROUND} - unused


@pytest.mark.parametrize("options", [(), ("--prompt", "64", "--depth", "0,512")], ids=" ".join)
def test_predict_loads_nothing_that_measures_or_advises(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    engine = build_engine(
        {"Q4_0": {1: 20 * GB}},
        attention={("f16", "f16", True): 5 * GB},
        seconds={"bytes:Q4_0@64": 1 / GB},
    )
    profile = tmp_path / "profile.json"
    save_profile(build_profile({1: 30 * GB}, engine), profile)
    code = "import sys, cpubound.cli; assert not cpubound.cli.main(sys.argv[1:]); "
    code += f"{NOTHING_FITTED}; {PRINT_LOADED}"
    run = run_python(code, "predict", "llama-3.1-8b:Q4_0", "--profile", str(profile), *options)
    assert "llama-3.1-8b" in run.stdout
    assert rooms_of(run.stderr.split()) == PREDICTING


def rooms_of(modules: list[str]) -> set[str]:
    """Return the rooms of loaded modules; of kernels and machine their values are left out."""
    values = {
        f"cpubound.{room}{name}" for room in ("kernels", "machine") for name in ("", ".values")
    }
    return {module.split(".")[1] for module in modules if module not in values}


def test_every_folder_of_the_package_is_in_the_wheel() -> None:
    text = (PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8")
    listed = set(re.findall(r'^    "(cpubound[a-z._]*)",$', text, re.MULTILINE))
    folders = {
        ".".join(path.parent.relative_to(PACKAGE.parent).parts)
        for path in PACKAGE.rglob("__init__.py")
    }
    assert folders == listed


def test_only_one_module_prints() -> None:
    prints = re.compile(r"\b(click\.s?echo|print|std(out|err)\.write|stream\.write)\(")
    found = {
        str(path.relative_to(PACKAGE)) for path in SOURCES if prints.search(path.read_text("utf-8"))
    }
    # The process that only ties another one to its parent has nothing of cpubound's.
    assert found == {"cli/terminal.py", "engine/tied.py"}
