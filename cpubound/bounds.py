"""How much of each kind of input is taken, in one place: beyond it there is an error, no wait.

``docs/reliability.md`` prints ``BOUNDS``; a test compares the two.
"""

from __future__ import annotations

MIB = 2**20

# GGUF headers. Gemma's, among the longest, is 16 MiB; the longest names are far below these.
# The largest models have some 2,000 tensors, the most finely split ones some 200 shards.
MODEL_HEADER_BYTES = 128 * MIB  # of all shards of a model together
MODEL_ENTRIES = 2**15  # tensors of all shards together; keys and arrays of one file
MODEL_SHARDS = 1000
KEPT_METADATA_BYTES = 8 * MIB  # of strings and arrays together, as Python objects

# The web, for a whole model: redirects, retries and shards included.
REMOTE_SECONDS = 120.0
REMOTE_SILENT_SECONDS = 15.0
REMOTE_BYTES = 64 * MIB
REMOTE_REQUESTS = 500

# What other programs print. A sweep of a hundred models over a hundred settings takes 10 MB of
# JSON. A server that runs for months writes gigabytes, of which runs are read line by line.
PRINTED_BYTES = 16 * MIB
LOG_BYTES = 4 * 2**30
LOG_LINE_CHARACTERS = 2000
ROWS = 20_000

# A profile of a 1,024-CPU machine with every sample is under 2 MiB.
PROFILE_BYTES = 64 * MIB
CONFIG_BYTES = MIB
INDEX_BYTES = 64 * MIB
MANIFEST_BYTES = MIB
MACHINE_FILE_BYTES = 8 * MIB
STORE_FOLDERS = 20_000

# The command line.
THREADS = 4096
DEPTH_TOKENS = 2**27
PROMPT_TOKENS = 2**20
BATCH = 2**16
SETTINGS = 2**14  # steps that a command works out; a prompt has one for each 512 tokens
SHOWN_CHARACTERS = 5000

# (input, what is bounded, how much)
BOUNDS: tuple[tuple[str, str, str], ...] = (
    ("GGUF file", "bytes of the headers of all shards", f"{MODEL_HEADER_BYTES // MIB} MiB"),
    ("GGUF file", "tensors of all shards", f"{MODEL_ENTRIES:,}"),
    ("GGUF file", "keys and nested arrays of one shard, each", f"{MODEL_ENTRIES:,}"),
    ("GGUF file", "shards", f"{MODEL_SHARDS:,}"),
    ("GGUF file", "metadata kept of one shard", f"{KEPT_METADATA_BYTES // MIB} MiB"),
    ("web address", "time for the whole model", f"{REMOTE_SECONDS:.0f} s"),
    ("web address", "time without a byte", f"{REMOTE_SILENT_SECONDS:.0f} s"),
    ("web address", "bytes for the whole model", f"{REMOTE_BYTES // MIB} MiB"),
    ("web address", "requests for the whole model", f"{REMOTE_REQUESTS:,}"),
    ("rows of llama-bench", "bytes of the file", f"{PRINTED_BYTES // MIB} MiB"),
    ("rows of llama-bench", "rows", f"{ROWS:,}"),
    ("log", "bytes where it is JSON or a table", f"{PRINTED_BYTES // MIB} MiB"),
    ("log", "bytes where it has a line for each fact", f"{LOG_BYTES // 2**30} GiB"),
    ("log", "characters read of a line", f"{LOG_LINE_CHARACTERS:,}"),
    ("log", "runs", f"{ROWS:,}"),
    ("profile", "bytes of the file", f"{PROFILE_BYTES // MIB} MiB"),
    ("config.json", "bytes of the file", f"{CONFIG_BYTES // MIB} MiB"),
    ("config.json", "bytes of the index of weights beside it", f"{INDEX_BYTES // MIB} MiB"),
    ("store of Ollama", "bytes of a manifest", f"{MANIFEST_BYTES // MIB} MiB"),
    ("stores of models", "folders looked into", f"{STORE_FOLDERS:,}"),
    ("/proc and /sys", "bytes of a file", f"{MACHINE_FILE_BYTES // MIB} MiB"),
    ("command line", "threads", f"{THREADS:,}"),
    ("command line", "tokens of context", f"{DEPTH_TOKENS:,}"),
    ("command line", "tokens of a prompt", f"{PROMPT_TOKENS:,}"),
    ("command line", "sequences decoded together", f"{BATCH:,}"),
    ("command line", "steps worked out by one command", f"{SETTINGS:,}"),
    ("any name", "characters shown", f"{SHOWN_CHARACTERS:,}"),
)
