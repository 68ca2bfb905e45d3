"""Run any llama-bench binary: the build that the user really runs, with nothing to compile."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import msgspec

from cpubound.engine.inprocess import check_settings
from cpubound.engine.processes import MemoryKills, cannot_execute, tied_command
from cpubound.engine.values import EngineIdentity, Observation, RunSettings
from cpubound.errors import (
    EngineCrashed,
    EngineUnavailable,
    MachineError,
    ModelFileError,
    UsageError,
)
from cpubound.trust import find_program

# --version: "version: 4711 (0c1e57098)", of late "version: 0.5.0 (build 4711, commit 0c1e57098)".
_BUILD = re.compile(r"version: (?:(\d+) \(|\S+ \(build (\d+), commit )(\w+)\)")

# How llama-bench refuses what its version does not have, and getopt-like wrappers do.
_UNKNOWN_OPTION = re.compile(
    r"(?:invalid parameter for argument|unknown argument|unrecognized option)[: ]+'?([-\w]+)"
)


class _Result(msgspec.Struct, frozen=True):
    """What is needed of one entry of ``-o json`` (test::get_fields, llama-bench.cpp)."""

    build_commit: str
    build_number: int
    n_gen: int
    samples_ns: list[int]
    n_prompt: int = 0


class LlamaBenchRunner:
    """Decodes, or processes prompts, by calling a llama-bench binary once a run; a ``Runner``.

    llama-bench times a repetition of ``tokens`` tokens as a whole, so a sample is the mean
    seconds per token of one repetition: there are as many samples as repetitions, not as
    tokens; of prompts it is the whole prompt. Every run loads the model again, in a context
    of llama-bench's own size. Its own warm-up token is decoded at depth 0.

    Parameters: the binary, looked for on PATH if it is a bare name; repetitions in one run;
    seconds after which a run is ended, None for never. Raises ``EngineUnavailable`` when the
    binary cannot be run.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        repetitions: int = 3,
        timeout_s: float | None = None,
    ) -> None:
        found = _find_binary(path)
        if found is None:
            raise EngineUnavailable(
                f"no llama-bench that can be run ({path}): give the path of the binary"
            )
        self._path = found
        self._repetitions = repetitions
        self._timeout_s = timeout_s
        self._identity: EngineIdentity | None = None
        self._options: str | None = None

    def __enter__(self) -> LlamaBenchRunner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def identity(self) -> EngineIdentity:
        """Name the build: number and commit, or a digest of a binary too old to say them."""
        if self._identity is None:
            said = _BUILD.search(self._call(["--version"], None).both)
            self._identity = EngineIdentity(
                name="llama-bench",
                version=_version(said.group(1) or said.group(2), said.group(3))
                if said
                else "unknown",
                build=said.group(3) if said else _digest(self._path),
            )
        return self._identity

    def run(self, settings: RunSettings) -> Observation:
        """Decode at a setting; samples are seconds per token, one for each repetition.

        With ``prompt_tokens`` they are seconds of a prompt. ``n_ctx`` says nothing here.

        Raises
        ------
        UsageError : what llama-bench does not do: decode several sequences at once.
        ModelFileError : the file cannot be loaded.
        EngineUnavailable : this build lacks an option that the setting needs.
        EngineCrashed : llama-bench ended by a signal, or its answer cannot be read.
        """
        check_settings(settings)
        if settings.setting.batch > 1:
            raise UsageError(
                f"llama-bench decodes one sequence (batch {settings.setting.batch}): "
                "use the llama-cpp-python engine"
            )
        if not Path(settings.model_path).is_file():
            raise ModelFileError(f"no such model file ({settings.model_path}): check the path")
        identity = self.identity()
        kills = MemoryKills()
        output = self._call(self._arguments(settings), settings.cpus)
        if output.code < 0:
            how = kills.explain(output.code) or f"signal {-output.code}"
            raise EngineCrashed(
                f"llama-bench ended inside a run ({how}; last words: "
                f"{output.last_line}): try a smaller model or context"
            )
        lacking = _UNKNOWN_OPTION.search(output.both) if output.code else None
        if lacking is not None:
            raise EngineUnavailable(
                f"this llama-bench does not know an option (build {identity.version}, "
                f"{lacking.group(1)}): give a build from 2025 or later"
            )
        if output.code and "failed to load model" in output.both:
            raise ModelFileError(f"llama-bench refuses the model ({settings.model_path})")
        if output.code:
            raise MachineError(
                f"llama-bench failed (exit code {output.code}; last words: {output.last_line}): "
                "run it by hand to see why"
            )
        result = _read_result(output.text, prompt=settings.prompt_tokens is not None)
        # A prompt is one sample whatever its length.
        per_sample = 1 if settings.prompt_tokens is not None else result.n_gen
        return Observation(
            settings=settings,
            engine=EngineIdentity(
                name=identity.name,
                version=_version(str(result.build_number), result.build_commit),
                build=result.build_commit,
            ),
            samples_s=tuple(ns / 1e9 / per_sample for ns in result.samples_ns),
        )

    def close_model(self, model_path: str) -> None:
        """Do nothing: llama-bench keeps no model open."""

    def close(self) -> None:
        """Do nothing: no process stays between runs."""

    def _arguments(self, settings: RunSettings) -> list[str]:
        arguments = ["-o", "json", "-m", str(Path(settings.model_path).absolute()), "-ngl", "0"]
        if settings.prompt_tokens is None:
            arguments += ["-p", "0", "-n", str(settings.tokens), "-r", str(self._repetitions)]
        else:
            arguments += ["-p", str(settings.prompt_tokens), "-n", "0", "-r", str(settings.tokens)]
        arguments += [
            "-t",
            str(settings.setting.threads),
            "-fa",
            str(int(settings.setting.flash_attn)),
        ]
        arguments += ["-ctk", settings.setting.kv_type_k, "-ctv", settings.setting.kv_type_v]
        # Options that not every build has are given only where they say something.
        if settings.setting.depth_tokens:
            arguments += ["-d", str(settings.setting.depth_tokens)]
        if not settings.mmap:
            # Builds before the load modes called it mmap.
            has_load_mode = "--load-mode" in self._help()
            arguments += ["-lm", "none"] if has_load_mode else ["-mmp", "0"]
        if not settings.repack:
            arguments += ["--repack", "0"]
        return arguments

    def _help(self) -> str:
        if self._options is None:
            self._options = self._call(["--help"], None).both
        return self._options

    def _call(self, arguments: list[str], cpus: tuple[int, ...] | None) -> _Output:
        try:
            with _pinned(cpus):
                process = subprocess.Popen(
                    tied_command(self._path, arguments),
                    # It looks for plug-ins in its own folder and in the current one.
                    cwd=self._path.parent,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    # Ctrl-C is for the parent: it decides what becomes of the run.
                    start_new_session=True,
                )
        except OSError as error:
            raise self._cannot_run(error.strerror) from error
        with process:
            try:
                text, log = process.communicate(timeout=self._timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                raise EngineCrashed(
                    f"llama-bench did not end ({self._timeout_s:g} s): "
                    "use a smaller model or a shorter run"
                ) from None
            except BaseException:
                process.kill()
                raise
        output = _Output(
            code=process.returncode,
            text=text.decode("utf-8", "replace"),
            log=log.decode("utf-8", "replace"),
        )
        reason = cannot_execute(output.code, output.log)
        if reason is not None:
            raise self._cannot_run(reason)
        return output

    def _cannot_run(self, reason: str | None) -> EngineUnavailable:
        return EngineUnavailable(
            f"llama-bench cannot be run ({self._path}: {reason}): "
            "give a binary made for this machine"
        )


class _Output(msgspec.Struct, frozen=True):
    """What one call gave."""

    code: int
    text: str
    log: str

    @property
    def both(self) -> str:
        return self.text + self.log

    @property
    def last_line(self) -> str:
        lines = [line.strip() for line in self.log.splitlines() if line.strip()]
        return lines[-1] if lines else "none"


def _version(number: str, commit: str) -> str:
    """Return the build number, or the commit of a build that was made outside of git."""
    return commit if number == "0" else number


def find_llama_bench() -> Path | None:
    """Return the llama-bench on PATH, None if there is none."""
    return find_program("llama-bench")


def _find_binary(path: str | os.PathLike[str]) -> Path | None:
    """Find what was named by a path, or on PATH by its bare name; None if it cannot be run."""
    binary = Path(path)
    if os.fspath(path) == binary.name:
        return find_program(binary.name)
    found = shutil.which(binary.absolute())
    return Path(found) if found else None


def _read_result(text: str, *, prompt: bool) -> _Result:
    try:
        results = msgspec.json.decode(text, type=list[_Result])
    except msgspec.MsgspecError as error:
        raise EngineCrashed(
            f"llama-bench's answer cannot be read ({error}): use a build from 2025 or later"
        ) from error
    tested = results[0].n_prompt if prompt and results else results[0].n_gen if results else 0
    if len(results) != 1 or not results[0].samples_ns or tested < 1:
        raise EngineCrashed(
            f"llama-bench's answer has no test of this kind ({len(results)} entries): "
            "use a build from 2025 or later"
        )
    return results[0]


@contextmanager
def _pinned(cpus: tuple[int, ...] | None) -> Iterator[None]:
    """Start a process on some CPUs: it inherits the mask of the thread that starts it."""
    if cpus is None:
        yield
        return
    if not hasattr(os, "sched_setaffinity"):
        raise MachineError("this system cannot pin a process to CPUs: leave the CPU list out")
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        raise UsageError(
            f"cannot pin the engine to CPUs ({','.join(map(str, cpus))}): {error.strerror}; "
            "name CPUs this process may use"
        ) from error
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _digest(path: Path) -> str:
    with path.open("rb") as binary:
        return hashlib.sha256(binary.read()).hexdigest()[:16]
