# The everyday commands. They need Python 3.10 or later with venv, g++ and make; everything else
# comes from pip into $(VENV). Several people can work in one tree at once, each with a VENV= and a
# BUILD= of their own.
PYTHON ?= python3
VENV ?= .venv
BUILD ?= build
# ON turns compiler warnings into errors; changing it recompiles everything.
WERROR ?= OFF
# The GPUs that the library carries machine code for: native (those of this machine), all, off, or
# numbers such as 80,90. NVRTC compiles the kernels for others at first use.
CUDA_ARCHITECTURES ?= native
# What `make sanitize` checks with: address,undefined or thread.
SANITIZE ?= address,undefined
# Random calls of each interface that `make sanitize` makes, and the seed of their numbers.
FUZZ_CALLS ?= 1000000
FUZZ_SEED ?= 1
# For instance: PYTEST_ARGS='tests/model -k search -x'
PYTEST_ARGS ?=
# Processes that share the tests; 0: the tests run in the process that was started.
WORKERS ?= $(jobs)

bin := $(abspath $(VENV))/bin
build := $(abspath $(BUILD))
jobs := $(shell nproc 2>/dev/null || echo 2)
# cmake and ninja of the environment are found first, and so is its oneDNN.
export PATH := $(bin):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Folders are listed too, because their time changes when a file comes or goes.
native_sources := $(shell find native)
python_sources := $(shell find oocdnn perfmodel bench -not -name '__pycache__*' -not -name '*.pyc')
# The driver and the cuDNN that stand in for a GPU's are built with the testing library.
fakes := $(wildcard tests/gpu/*.cpp tests/gpu/*.hpp)
tidied := $(filter %.cpp,$(native_sources))
formatted := $(filter %.cpp %.hpp %.c %.h,$(native_sources))

pip := python -m pip --quiet
# Object files stay in the build folder, so only what changed is compiled again. Who runs no tests
# compiles but what is installed.
build_in = --no-build-isolation --config-settings=build-dir=$(1)/native \
	--config-settings=cmake.define.OOCDNN_TESTING=ON \
	--config-settings=cmake.define.OOCDNN_WERROR=$(WERROR) \
	--config-settings=cmake.define.OOCDNN_CUDA_ARCHITECTURES=$(CUDA_ARCHITECTURES)
only_installed = --config-settings=build.targets=oocdnn_installed
testing_library = OOCDNN_TESTING_LIBRARY=$(1)/native/lib/liboocdnn_testing.so
# The package that `make lint` installed has all that tests need, so it is not installed a second time.
installed_for_tests := $(build)/installed.$(if $(wildcard $(build)/installed.dev),dev,test)

.PHONY: all demo test test-long torch-cpu reliability wheel lint tidy format sanitize clean
all: wheel

demo: $(build)/installed.demo
	oocdnn demo --out demo-out

test: $(installed_for_tests)
	$(call testing_library,$(build)) pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

test-long: $(installed_for_tests)
	$(call testing_library,$(build)) pytest -m "" --timeout 3600 --hypothesis-profile=default \
		$(PYTEST_ARGS)

# Tests that compare with PyTorch are skipped without it.
torch-cpu: $(VENV)/ready
	$(pip) install --group torch-cpu

# The long runs behind docs/results/reliability.md. ROWS=1,7 runs these only; QUICK=1 does little and
# records nothing.
reliability: $(installed_for_tests)
	cd tests && $(call testing_library,$(build)) python -m reliability \
		$(if $(ROWS),--rows $(ROWS)) $(if $(QUICK),--quick,\
		--out ../docs/results/reliability-cpu.json --markdown ../docs/results/reliability.md)

# For machines other than this one.
wheel: CUDA_ARCHITECTURES = all
wheel: $(VENV)/ready
	$(pip) wheel . --no-deps --wheel-dir dist $(call build_in,$(build)) $(only_installed)
	@ls -l dist/*.whl

# What a build needs beforehand; a changed pyproject.toml brings it up to date.
$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(pip) install --upgrade 'pip>=25.1'
	$(pip) install --group build
	@touch $@

# The package in the environment, with the dependencies of one extra: demo, test or dev. The mark's
# time is that of the beginning, so that what is edited meanwhile counts as changed.
$(build)/installed.%: $(VENV)/ready $(native_sources) $(python_sources) $(fakes)
	@mkdir -p $(build) && touch $@.began
	$(pip) install '.[$*]' $(call build_in,$(build)) $(if $(filter demo,$*),$(only_installed))
	@mv $@.began $@

$(bin)/clang-format:
	$(MAKE) $(build)/installed.dev

# mypy sees the package as it is installed, where perfmodel/ and bench/ lie inside oocdnn/.
lint: $(build)/installed.dev
	ruff check
	ruff format --check
	@rm -rf $(build)/typed && mkdir -p $(build)/typed/oocdnn
	@ln -s $(CURDIR)/oocdnn/* $(CURDIR)/perfmodel $(CURDIR)/bench $(build)/typed/oocdnn
	cd $(build)/typed && mypy --config-file $(CURDIR)/pyproject.toml -p oocdnn
	@clang-format --dry-run -Werror $(formatted)
	+@$(MAKE) --no-print-directory --keep-going --output-sync -j$(jobs) tidy

# clang-tidy, on every source that changed, or a header did, since it was last found clean. It sees
# the sources without the precompiled header, so each has to include what it uses.
tidy: $(tidied:native/%.cpp=$(build)/tidy/%.clean)

$(build)/tidy/compile_commands.json: $(build)/native/compile_commands.json
	@mkdir -p $(@D)
	@sed 's/ -Winvalid-pch -include [^ ]*//' $< > $@

$(build)/tidy/%.clean: native/%.cpp $(filter %.hpp %.h,$(native_sources)) .clang-tidy \
		| $(build)/tidy/compile_commands.json
	@echo "clang-tidy $<"
	@mkdir -p $(@D)
	@clang-tidy --quiet --extra-arg=-Wno-unknown-warning-option -p $(build)/tidy $<
	@touch $@

# Needs the tools, but no sources that compile.
format: | $(bin)/clang-format
	ruff check --fix --exit-zero
	ruff format
	@clang-format -i $(formatted)

# The library, built a second time with sanitizers, under clients in C++ that they see all of, leaks
# and threads too (native/testing/exercise), and that make random calls of the drop-in
# (native/testing/fuzz). With the address sanitizer also random calls of the C interface
# (native/testing/fuzz_capi) and of the Python interface (tests/fuzz/python_calls.py), and the tests,
# on the package unpacked beside the environment's and found before it. Python itself is not
# instrumented, so the run time goes in first, then what throws and catches; and leaks are not
# counted there, because Python's own would be; the thread sanitizer does not bear it. Reports go
# straight to the terminal, past pytest's capture.
comma := ,
instrumented := $(build)/sanitize-$(subst $(comma),-,$(SANITIZE))
onednn_path := LD_LIBRARY_PATH=$(abspath $(VENV))/lib
fuzzed := OOCDNN_DEVICE=cpu OOCDNN_PROFILE=none OOCDNN_PLANS=none OOCDNN_LOG=error $(onednn_path)
# Short stacks: each way through Python is another one, and all are kept.
uninstrumented = ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:malloc_context_size=6 \
	LD_PRELOAD="$(foreach library,libasan libstdc++,$(shell $(CXX) -print-file-name=$(library).so))"

sanitize: $(installed_for_tests)
	rm -rf $(instrumented)/dist $(instrumented)/site
	$(pip) wheel . --no-deps --wheel-dir $(instrumented)/dist $(call build_in,$(instrumented)) \
		--config-settings=install.strip=false \
		--config-settings=cmake.define.OOCDNN_SANITIZE=$(SANITIZE)
	$(onednn_path) $(instrumented)/native/bin/oocdnn_exercise
	$(fuzzed) $(instrumented)/native/bin/oocdnn_fuzz $(FUZZ_SEED) $(FUZZ_CALLS)
ifneq ($(SANITIZE),thread)
	python -m zipfile -e $(instrumented)/dist/*.whl $(instrumented)/site
	$(fuzzed) $(instrumented)/native/bin/oocdnn_fuzz_capi $(FUZZ_SEED) $(FUZZ_CALLS)
	cd tests && PYTHONPATH=$(instrumented)/site $(fuzzed) $(uninstrumented) \
		python -m fuzz.python_calls $(FUZZ_SEED) $(FUZZ_CALLS)
	PYTHONPATH=$(instrumented)/site $(onednn_path) $(uninstrumented) \
		$(call testing_library,$(instrumented)) \
		pytest --capture=sys --timeout 3600 $(PYTEST_ARGS)
endif

clean:
	rm -rf $(BUILD) $(VENV) dist demo-out
