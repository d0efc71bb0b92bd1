# `make help` lists the commands. All of them set up what they need in .venv and _build inside this folder.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

VENV := .venv
PYTHON := $(VENV)/bin/python
READY := $(VENV)/ready
BOOK := _build/html/.complete
PLACE := _build/place
NOTEBOOKS ?= $(sort $(wildcard chapters/*.ipynb))
WORKERS ?= 2
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)  # containers often run as root, which Jupyter refuses unasked

# Caches and settings of the tools stay inside this folder; one thread per worker, so that workers do not fight for cores.
HERE := $(CURDIR)
export PATH := $(HERE)/$(VENV)/bin:$(PATH)
export VIRTUAL_ENV := $(HERE)/$(VENV)
export XDG_CACHE_HOME := $(HERE)/$(VENV)/cache
export PIP_CACHE_DIR ?= $(HERE)/$(VENV)/cache/pip
export MPLCONFIGDIR := $(HERE)/$(VENV)/cache/matplotlib
export IPYTHONDIR := $(HERE)/$(VENV)/cache/ipython
export JUPYTER_CONFIG_DIR := $(HERE)/$(VENV)/cache/jupyter/config
export JUPYTER_DATA_DIR := $(HERE)/$(VENV)/cache/jupyter/data
export JUPYTER_RUNTIME_DIR := $(HERE)/$(VENV)/cache/jupyter/runtime
export JUPYTERLAB_SETTINGS_DIR := $(HERE)/$(VENV)/cache/jupyter/settings
export JUPYTERLAB_WORKSPACES_DIR := $(HERE)/$(VENV)/cache/jupyter/workspaces
export npm_config_cache := $(HERE)/$(VENV)/cache/npm
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYDEVD_DISABLE_FILE_VALIDATION := 1
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
unexport PYTHONPATH PYTHONHOME

# What the built pages are made from.
SOURCES := _config.yml _toc.yml index.md references.bib requirements.txt pyproject.toml README.md LICENSE tools/plain_sphinx.txt tools/lab_copy.py \
	$(wildcard chapters/*.ipynb chapters/*.md chapters/runs/*.json assignments/release/*.ipynb rlbook_lib/*.* tests/test_*.py) \
	$(shell find _ext _static _templates -type f -not -path '*/__pycache__/*')

.PHONY: always help setup book pdf zip slides cards test test-portable test-grader quick claims lab notebooks execute grade release lock outdated plain clean

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  make \1|/' | column -t -s '|'

setup: $(READY)  ## install what the book needs into .venv (the other commands do it by themselves)

book: $(BOOK)  ## build the book: _build/html/index.html
	@echo "The book: $(HERE)/_build/html/index.html"

# Asked before the book is built: whether anything here can print.
pdf: $(READY)  ## print the book, all pages in one file: _build/rlbook.pdf (needs Chromium)
	@$(PYTHON) tools/print_book.py --check
	@$(MAKE) book
	@$(PYTHON) tools/print_book.py

zip: $(BOOK)  ## put the site into one file that works offline when unpacked: _build/rlbook.zip
	@$(PYTHON) tools/zip_site.py

slides: $(BOOK)  ## slides of each lesson, one file each, whose explorers work offline: _build/slides
	@$(PYTHON) tools/slides.py

cards: $(BOOK)  ## quizzes and formulas as cards to recall, for Anki: _build/rlbook-cards.txt
	@$(PYTHON) tools/cards.py

test: $(READY)  ## run every test: library, notebooks, strict build, browser
	@$(PYTHON) tools/run_tests.py --workers $(WORKERS)

test-portable: $(READY)  ## run the unit tests and the notebooks again as on a plain processor: outputs must not depend on it
	@$(PYTHON) tools/run_tests.py --portable --workers $(WORKERS)

test-grader: $(READY)  ## run the grader's long tests: attacks on it, and a course of submissions of every assignment (minutes; needs bubblewrap)
	@$(PYTHON) tools/run_tests.py --grader --workers $(WORKERS)

quick: $(READY)  ## run the unit tests that take no more than seconds (under 2 minutes in all)
	@$(PYTHON) tools/run_tests.py --workers $(WORKERS) --quick

claims: $(READY)  ## run the book's general sentences on seeds that were not chosen for them; SEEDS="11 12 13"
	@$(PYTHON) tools/claims.py $(if $(SEEDS),--seeds $(SEEDS))

# Copies in lab/, the reader's own: what one notebook alone cannot show is said in words, and no chapter is touched.
# Trusted, so that stored sliders move before a cell has run.
lab: $(READY)  ## open copies of the chapters in JupyterLab; what you change stays in lab/
	@$(PYTHON) tools/lab_copy.py --settings "$(JUPYTERLAB_SETTINGS_DIR)"
	@$(VENV)/bin/jupyter trust lab/*.ipynb > /dev/null
	@$(VENV)/bin/jupyter lab $(AS_ROOT) --notebook-dir=lab lab/00_contents.md

notebooks: $(READY)  ## the same copies for VS Code and others that know plain Markdown only, in notebooks/
	@$(PYTHON) tools/lab_copy.py notebooks --plain
	@echo "The copies: $(HERE)/notebooks"

execute: $(READY)  ## run the notebooks and store their outputs; some only: NOTEBOOKS=chapters/02_mdps.ipynb
	@$(PYTHON) tools/execute_notebooks.py $(NOTEBOOKS)

# Student code runs in a sandbox (bubblewrap); an interrupted run goes on where it was.
grade: $(READY)  ## grade submissions: SUBMISSIONS=folder ASSIGNMENT=01_mdps, optional OUTPUT=folder ROSTER=file WORKERS=2 ONLY=student REGRADE=1 UNSAFE=1
	@[ -n "$(SUBMISSIONS)" ] || { echo 'make grade: SUBMISSIONS is missing: say SUBMISSIONS=folder' >&2; exit 2; }
	@[ -n "$(ASSIGNMENT)" ] || { echo 'make grade: ASSIGNMENT is missing: say ASSIGNMENT=01_mdps' >&2; exit 2; }
	@$(PYTHON) -m assignments.grader grade --workers $(WORKERS) $(if $(OUTPUT),--output "$(OUTPUT)") \
		$(if $(ROSTER),--roster "$(ROSTER)") $(if $(ONLY),--only "$(ONLY)") $(if $(REGRADE),--regrade) $(if $(UNSAFE),--unsafe) "$(SUBMISSIONS)" "$(ASSIGNMENT)"

release: $(READY)  ## write the notebooks for students into assignments/release; one only: ASSIGNMENT=01_mdps
	@$(PYTHON) -m assignments.grader release $(ASSIGNMENT)

# Works without an environment, so that a lock that cannot be installed can be renewed.
lock:  ## renew the pins of what requirements.txt brings along; UPGRADE=1 takes the newest versions (needs the package index)
	@$(or $(BOOK_PYTHON),python3) tools/lock.py $(if $(UPGRADE),--upgrade)

outdated: $(READY)  ## try the newest packages in an environment that is thrown away, and say what breaks; TORCH=1: torch too
	@$(PYTHON) tools/outdated.py --workers $(WORKERS) $(if $(TORCH),--torch)

plain: $(READY)  ## build two chapters without Jupyter Book, by the newest Sphinx, and compare; THEMES=1: the newest theme too
	@$(PYTHON) tools/plain_sphinx.py $(if $(THEMES),--themes)

clean:  ## remove the built book and all caches; .venv stays
	rm -rf _build .pytest_cache .mypy_cache .ruff_cache .hypothesis $(VENV)/cache
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +

# Always from scratch: a page that did not change can still hold a reference that broke.
$(BOOK): $(SOURCES) $(PLACE) $(READY)
	@echo "Building the book; warnings are errors."
	@rm -rf _build/html _build/.doctrees
	@$(VENV)/bin/jupyter-book build -W -n --keep-going . 
	@touch $@

# What the pages say about the place where they are (_ext/hosting.py): when that changes, the book is built again.
$(PLACE): PLACE_NOW = $(BOOK_REPOSITORY) $(BOOK_URL)
$(PLACE): always
	@mkdir -p $(@D)
	@echo '$(PLACE_NOW)' | cmp -s - $@ || echo '$(PLACE_NOW)' > $@

$(READY): requirements.txt requirements.lock constraints.txt pyproject.toml tools/setup.sh
	@bash tools/setup.sh $(VENV)
	@touch $@
