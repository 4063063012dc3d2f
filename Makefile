# One command for each job. Each sets up .venv first, once.
#   make tune    run the main job (options: make tune ARGS="--gpu a100")
#   make test    the tests that this machine can run, with coverage (make test-deep: the rest)
#   make lint    ruff and mypy         make format   apply ruff's format and fixes
#   make sanitize   one kernel of each kind under compute-sanitizer, on a GPU
# PYTHON names the interpreter that .venv is made from.

PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
COVERED := ptxgen search db reports

.PHONY: venv tune test test-deep sanitize lint format clean

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "ptxtune needs Python 3.11 or newer; name one with make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

tune: $(STAMP)
	$(BIN)/ptxtune tune --n 4096 --k 4096 --m 1,8,16 --budget quick $(ARGS)

# Kernels are compiled and interpreted without coverage, which would double their time.
test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not deep" tests/unit tests/gpu $(addprefix --cov=,$(COVERED)) \
	  --cov-report=term:skip-covered --cov-fail-under=85 $(ARGS)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not deep" tests/compile

# The rest of what is sampled (tests/conftest.py): some seven minutes more on two cores.
test-deep: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m deep

sanitize: $(STAMP)
	PYTHONPATH=tests/helpers $(BIN)/python -m sanitize $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
