"""Programs that run a model: what each does by itself, and how each is told otherwise."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from cpubound.advise.tune.defaults import Default, koboldcpp_default, program_defaults
from cpubound.errors import UsageError
from cpubound.machine.values import Machine


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """How one program takes thread counts, and whose defaults it has."""

    name: str
    threads_format: str
    batch_threads_format: str | None = None  # None: one count serves both
    default_of: str = "llama.cpp"  # as ``program_defaults`` names it

    def threads_setting(self, threads: int, batch_threads: int | None = None) -> str:
        """Write what sets the decode threads, and those of prompts where they are given."""
        text = self.threads_format.format(threads)
        if batch_threads is None or self.batch_threads_format is None:
            return text
        separator = ", " if "=" in text else " "
        return f"{text}{separator}{self.batch_threads_format.format(batch_threads)}"

    def default(self, machine: Machine) -> Default:
        """Return what the program takes by itself on a machine."""
        if self.name == "koboldcpp":
            return koboldcpp_default(machine)
        return program_defaults(machine)[self.default_of]


ENGINES = (
    Engine(name="llama.cpp", threads_format="-t {}", batch_threads_format="-tb {}"),
    Engine(name="llama-bench", threads_format="-t {}"),
    Engine(
        name="llama-cpp-python",
        threads_format="n_threads={}",
        batch_threads_format="n_threads_batch={}",
        default_of="llama-cpp-python",
    ),
    Engine(name="ollama", threads_format="PARAMETER num_thread {}", default_of="Ollama"),
    # Its engine is llama.cpp; its settings name the count "CPU Thread Pool Size".
    Engine(name="lm-studio", threads_format="a CPU thread pool size of {}"),
    Engine(
        name="koboldcpp",
        threads_format="--threads {}",
        batch_threads_format="--blasthreads {}",
    ),
    Engine(
        name="text-generation-webui",
        threads_format="--threads {}",
        batch_threads_format="--threads-batch {}",
    ),
    Engine(name="llamafile", threads_format="-t {}"),
)
LLAMA_CPP = ENGINES[0]
# Other names people give: programs of llama.cpp take the same settings.
_OTHER_NAMES = {
    "llama-server": "llama.cpp",
    "llama-cli": "llama.cpp",
    "llamacpp": "llama.cpp",
    "llama-cpp": "llama.cpp",
    "lmstudio": "lm-studio",
    "kobold.cpp": "koboldcpp",
    "kobold": "koboldcpp",
    "oobabooga": "text-generation-webui",
}


def find_engine(name: str) -> Engine:
    """Find a program by name (any case); ``UsageError`` names those that are known."""
    wanted = name.strip().lower().replace(" ", "-").replace("_", "-")
    wanted = _OTHER_NAMES.get(wanted, wanted)
    for engine in ENGINES:
        if engine.name == wanted:
            return engine
    names = [engine.name for engine in ENGINES]
    near = difflib.get_close_matches(wanted, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"give one of {', '.join(names)}"
    raise UsageError(f"no engine of this name ({name}): {hint}")
