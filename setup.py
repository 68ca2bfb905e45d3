"""The native extensions; everything else is in pyproject.toml.

``CPUBOUND_SANITIZE=address,undefined`` builds it with those sanitizers.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CSRC = sorted(str(path) for path in Path("csrc").glob("*.c"))
HEADERS = sorted(str(path) for path in Path("csrc").glob("*.h"))

# What is measured must be what is written: no link-time optimisation across the kernel
# table, no loop turned into a call of memcpy or memset, no sum and product fused into one.
UNIX_FLAGS = ["-std=c11", "-O3", "-fno-lto", "-ffp-contract=off", "-Wall", "-Wextra"]
GCC_FLAGS = ["-fno-tree-loop-distribute-patterns"]
CLANG_FLAGS = ["-fno-builtin"]
MSVC_FLAGS = ["/O2", "/W4"]


class BuildKernels(build_ext):
    """Choose flags by the compiler in use, not by the platform."""

    def build_extensions(self) -> None:
        if self.compiler.compiler_type == "msvc":
            flags, link_flags = MSVC_FLAGS, []
        else:
            is_clang = any("clang" in part for part in self.compiler.compiler)
            flags = UNIX_FLAGS + (CLANG_FLAGS if is_clang else GCC_FLAGS)
            link_flags = ["-fno-lto"]
            sanitizers = os.environ.get("CPUBOUND_SANITIZE")
            if sanitizers:
                extra = [f"-fsanitize={sanitizers}", "-g", "-fno-omit-frame-pointer"]
                flags, link_flags = flags + extra, link_flags + extra
        for extension in self.extensions:
            extension.extra_compile_args = flags
            extension.extra_link_args = link_flags
        super().build_extensions()


setup(
    ext_modules=cythonize(
        [
            Extension(
                "cpubound._kernels",
                ["cpubound/_kernels.pyx", *CSRC],
                include_dirs=["csrc"],
                depends=HEADERS,
            ),
            # Steps over vocabularies in file headers; a Python twin does the same.
            Extension("cpubound.model.gguf._skip", ["cpubound/model/gguf/_skip.pyx"]),
        ],
        build_dir="build/cython",
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "freethreading_compatible": True,
        },
    ),
    cmdclass={"build_ext": BuildKernels},
)
