"""The command of each program that sets what was chosen.

Flags as llama.cpp reads them at commit 0c1e57098bba: ``common/arg.cpp`` for llama-server and
llama-cli, ``tools/llama-bench/llama-bench.cpp`` for llama-bench (one thread count and one mask
for decode and prompts, ``--repack 0|1``). An explicit ``-tb`` does not inherit ``-C``, so
pinned commands carry ``-Cb`` too.
"""

from __future__ import annotations

from cpubound.advise.tune.values import Recommendation
from cpubound.foreign import shell_word
from cpubound.machine.values import Machine, format_cpu_list
from cpubound.model.quant import quant_type
from cpubound.setting import F16

# Room for the answer behind the depth that was asked about.
CONTEXT_ROOM = 1024


def context_for(depth_tokens: int, trained_tokens: int | None) -> int | None:
    """Return the cells to allocate for a depth: some room, in steps; None for an empty context."""
    if depth_tokens == 0:
        return None
    wanted = (depth_tokens // CONTEXT_ROOM + 1) * CONTEXT_ROOM + CONTEXT_ROOM
    return max(min(wanted, trained_tokens or wanted), depth_tokens)


def commands(
    model_path: str, r: Recommendation, machine: Machine, depth_tokens: int = 0
) -> dict[str, str]:
    """Return the command lines, by program."""
    prefix = _shell_prefix(r, machine)
    model = f"-m {shell_word(model_path)} -t {r.setting.threads}"
    server = f"{model} -tb {r.batch_threads} {_server_options(r)}"
    return {
        "llama-server": f"{prefix}llama-server {server}",
        "llama-cli": f"{prefix}llama-cli {server}",
        "llama-bench": f"{prefix}llama-bench {model} {_bench_options(r, depth_tokens)}",
        "llama-cpp-python": _python(model_path, r, machine),
        "ollama": _modelfile(r),
        "ollama serve": _ollama_serve(r, machine),
    }


def _shell_prefix(r: Recommendation, machine: Machine) -> str:
    prefix = "".join(f"{name}={value} " for name, value in r.environment.items())
    if r.numa == "numactl" and r.cpus:
        node = next(n.id for n in machine.numa_nodes if set(n.cpus) & set(r.cpus))
        prefix += f"numactl --cpunodebind={node} --membind={node} "
    return prefix


def _server_options(r: Recommendation) -> str:
    options = [f"-fa {_on_off(r.setting.flash_attn)}", *_cache_types(r)]
    if r.n_ctx is not None:
        options.append(f"-c {r.n_ctx}")
    if r.pin:
        options.append(f"-C {r.cpu_mask} --cpu-strict 1")
        options.append(f"-Cb {r.batch_cpu_mask} --cpu-strict-batch 1")
    if not r.repack:
        options.append("--no-repack")
    return " ".join([*options, *_memory_options(r)])


def _bench_options(r: Recommendation, depth_tokens: int) -> str:
    options = [f"-fa {_on_off(r.setting.flash_attn)}", *_cache_types(r)]
    if depth_tokens:
        options.append(f"-d {depth_tokens}")
    if r.pin:
        options.append(f"-C {r.cpu_mask} --cpu-strict 1")
    if not r.repack:
        options.append("--repack 0")
    return " ".join([*options, *_memory_options(r)])


def _memory_options(r: Recommendation) -> list[str]:
    options = [] if r.load_mode == "auto" else [f"-lm {r.load_mode}"]
    return [*options, "--numa distribute"] if r.numa == "distribute" else options


def _cache_types(r: Recommendation) -> list[str]:
    if r.setting.kv_types == F16:
        return []
    return [f"-ctk {r.setting.kv_type_k} -ctv {r.setting.kv_type_v}"]


def _python(model_path: str, r: Recommendation, machine: Machine) -> str:
    """Write the Python line; a process pins itself, since the binding has no masks.

    The process's own CPUs are those of decode and prompts alike: on cores of several kinds
    decode decides, elsewhere every core may help with prompts.
    """
    cpus, batch_threads, before = r.batch_cpus, r.batch_threads, ""
    if len(machine.core_kinds) > 1 or r.numa == "numactl":
        cpus, batch_threads = r.cpus, r.setting.threads
    if r.pin and cpus:
        before = f"import os; os.sched_setaffinity(0, {{{', '.join(map(str, sorted(cpus)))}}}); "
    else:
        batch_threads = r.batch_threads
    arguments = [ascii(model_path)]
    if r.n_ctx is not None:
        arguments.append(f"n_ctx={r.n_ctx}")
    arguments += [
        f"n_threads={r.setting.threads}",
        f"n_threads_batch={batch_threads}",
        f"flash_attn={r.setting.flash_attn}",
    ]
    if r.setting.kv_types != F16:
        arguments.append(f"type_k={quant_type(r.setting.kv_type_k).id}")
        arguments.append(f"type_v={quant_type(r.setting.kv_type_v).id}")
    if r.load_mode == "mmap+mlock":
        arguments.append("use_mlock=True")
    if r.load_mode == "none":
        arguments.append("use_mmap=False")
    if r.numa == "distribute":
        arguments.append("numa=True")
    return f"{before}Llama({', '.join(arguments)})"


def _modelfile(r: Recommendation) -> str:
    lines = [f"PARAMETER num_thread {r.setting.threads}"]
    if r.n_ctx is not None:
        lines.append(f"PARAMETER num_ctx {r.n_ctx}")
    if r.load_mode == "none":
        lines.append("PARAMETER use_mmap false")
    return "\n".join(lines)


def _ollama_serve(r: Recommendation, machine: Machine) -> str:
    """Write the server's line: flash-attention and KV type are environment, not parameters."""
    settings = [f"OLLAMA_FLASH_ATTENTION={int(r.setting.flash_attn)}"]
    k, v = r.setting.kv_types
    if k == v != "f16":
        settings.append(f"OLLAMA_KV_CACHE_TYPE={k}")
    settings += [f"{name}={value}" for name, value in r.environment.items()]
    if r.pin and r.cpus:
        cpus = r.cpus if len(machine.core_kinds) > 1 or r.numa == "numactl" else r.batch_cpus
        settings.append(f"taskset -c {format_cpu_list(cpus or r.cpus)}")
    return f"{' '.join(settings)} ollama serve"


def _on_off(state: bool) -> str:
    return "on" if state else "off"
