# What a newcomer types: `make study` (notebooks, figures, tables in runs/quick) and `make test`.
# Settings, all optional: PY=python3.12, PROFILE=full, ONLY=03 (one notebook of the study), FORCE=1 (run them all).

PY ?= python3
PROFILE ?= quick
ONLY ?=
FORCE ?=

BIN := .venv/bin
STAMP := .venv/.installed
WHAT := -c constraints.txt -e '.[test,lab]'

# uv does not read pip's settings: hand it the folder of local wheels that pip would use, if there is one.
empty :=
comma := ,
space := $(empty) $(empty)
PIP_LINKS = $(or $(PIP_FIND_LINKS),$(shell $(PY) -m pip config get global.find-links 2>/dev/null))
UV_FIND_LINKS ?= $(subst $(space),$(comma),$(strip $(PIP_LINKS)))

.PHONY: study test lint lab bench lock

study: $(STAMP)
	$(strip $(BIN)/dreamrsi study --profile $(PROFILE) $(addprefix --only ,$(ONLY)) $(if $(FORCE),--force))

test: $(STAMP)
	$(BIN)/python -m pytest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

lab: $(STAMP)
	$(BIN)/jupyter lab notebooks

bench: $(STAMP)
	$(BIN)/python benchmarks/replay.py --sdk
	$(BIN)/python benchmarks/sandbox.py

# The versions that everybody gets, for every system and Python that pyproject.toml allows.
lock: $(STAMP)
	$(BIN)/uv pip compile --universal --python-version 3.11 --all-extras pyproject.toml -o constraints.txt

$(STAMP): pyproject.toml constraints.txt
	@$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "This needs Python 3.11 or newer as '$(PY)'. Name another one: make PY=python3.12" >&2; exit 2; }
	@$(PY) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "'$(PY)' cannot make virtual environments; on Debian and Ubuntu install python3-venv." >&2; exit 2; }
	@echo "Installing into .venv (once; a minute or so, longer where uv cannot be used)"
	@$(PY) -m venv .venv
	@{ $(BIN)/python -m pip install --quiet uv && \
	   UV_FIND_LINKS='$(UV_FIND_LINKS)' $(BIN)/uv pip install --quiet --python $(BIN)/python $(WHAT); } || \
	  { echo "uv did not install it; trying pip" >&2; $(BIN)/python -m pip install --quiet $(WHAT); }
	@touch $@
