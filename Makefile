# make demo    see it work in this terminal: no key, no editor
# make test    the tests                      make check   ruff, pyright, import-linter
# make bench   speed beside a bare agent      make lock    choose newer versions for the tests
# make test-clients    clients of others, from npm and PyPI, drive it
# make pictures        the pictures of the README, after that
# make fuzz            no bytes make a parser crash or hang
# make test-orphans    nothing outlives 200 cancelled and killed sessions
# make mutants         36 seeded faults: does `dsh-acp snapshot check` notice?
#
# Each sets up .venv first, from hashed versions. PYTHON=… chooses the interpreter.

PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOCAL_STAMP := $(VENV)/.installed-local
# Warnings are errors in tests, so every text file that is opened must name its encoding.
PYTEST := PYTHONWARNDEFAULTENCODING=1 $(BIN)/python -m pytest
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-input
TEST_ARGS ?= -n auto
FUZZ_RUNS ?= 2000
ATHERIS_RUNS ?= 50000

export PIP_CACHE_DIR ?= $(CURDIR)/.cache/pip
unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME

.PHONY: demo test test-long check bench bench-audit e2e-local test-clients test-crash test-orphans test-chaos fuzz mutants pictures lock clean

demo: $(STAMP)
	@$(BIN)/python -m dsh_acp demo $(ARGS)

test: $(STAMP)
	$(PYTEST) -m "not long" --ignore=tests/clients --ignore=tests/clients_v2 $(TEST_ARGS) $(ARGS)

test-long: $(STAMP)
	$(PYTEST) -m long --ignore=tests/clients --ignore=tests/clients_v2 $(TEST_ARGS) $(ARGS)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/pyright

bench: $(STAMP)
	@$(BIN)/python tests/bench/run.py $(ARGS)

bench-audit: $(STAMP)
	@$(BIN)/python -m tests.bench.audit_growth $(ARGS)

e2e-local: $(LOCAL_STAMP)
	DSH_ACP_TEST_LOCAL=1 $(PYTEST) -m local_model -rP tests/llm tests/e2e $(ARGS)
	-$(BIN)/python -m dsh_acp demo --model local  # so small a model seldom fixes the bug

test-clients: $(STAMP)
	$(PYTEST) tests/clients tests/clients_v2 $(ARGS)

pictures: $(STAMP)
	PYTHONPATH=tests/clients $(BIN)/python docs/pictures.py

test-chaos: $(STAMP)
	DSH_ACP_TEST_TURNS=500 $(PYTEST) tests/e2e/test_e2e_chaos.py $(TEST_ARGS) -rP $(ARGS)

mutants: $(STAMP)
	$(BIN)/python tests/snapshot/mutants.py $(ARGS)

test-crash: $(STAMP)
	DSH_ACP_TEST_KILLS=200 $(PYTEST) tests/e2e/test_e2e_crash.py $(TEST_ARGS) $(ARGS)

# Hypothesis everywhere; atheris where there is a wheel of it.
fuzz: $(STAMP)
	DSH_ACP_FUZZ_RUNS=$(FUZZ_RUNS) $(PYTEST) tests/fuzz $(TEST_ARGS) $(ARGS)
	$(PIP) --target .cache/fuzz --upgrade --require-hashes --requirement requirements/fuzz.lock
	if [ -d .cache/fuzz/atheris ]; then PYTHONPATH=.cache/fuzz \
	$(BIN)/python tests/fuzz/coverage_guided.py $(ATHERIS_RUNS); fi

test-orphans: $(STAMP)
	DSH_ACP_TEST_SESSIONS=200 $(PYTEST) tests/e2e/test_e2e_orphans.py $(TEST_ARGS) $(ARGS)

$(STAMP): requirements/test.lock pyproject.toml requirements/venv.sh
	@sh requirements/venv.sh $(VENV) "$(PYTHON)"
	$(PIP) --require-hashes --requirement requirements/test.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(LOCAL_STAMP): $(STAMP) requirements/local.lock
	$(PIP) --require-hashes --requirement requirements/local.lock
	@touch $@

lock: $(STAMP)
	$(BIN)/python -m venv .cache/uv
	.cache/uv/bin/python -m pip --disable-pip-version-check install --quiet --upgrade uv
	.cache/uv/bin/uv pip compile $(LOCK) --output-file requirements/test.lock
	.cache/uv/bin/uv pip compile $(LOCK) --extra local --output-file requirements/local.lock

LOCK := pyproject.toml requirements/build.in --group dev --universal --python-version 3.11 \
	--generate-hashes --no-header --no-annotate --no-emit-index-url --no-config --upgrade --quiet

clean:
	rm -rf $(VENV) .cache .pytest_cache .ruff_cache .hypothesis dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
