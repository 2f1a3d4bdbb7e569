# `make` lists the commands. Each of them first makes or repairs .venv, so
# that there is nothing else to install: Python 3.11 or newer, git and make.
#
#   PYTHON=/path/to/python   which Python to make .venv with
#   SERVE=0                  build the book without serving it
#   PORT=8000                the first port to try
#   ARGS=...                 more options for pytest
#   JUDGES=../folder         the programs that `make conformance` runs
#   CHROMIUM=/path/to/it     the browser that tests the pages and prints them
#   TORCH=/path/to/python    a Python that has torch and what they need

PORT = 8000
SERVE = 1
PY = .venv/bin/python
JUDGES = ../shared/conformance
TORCH =

export PYTHON

.PHONY: help setup book pdf lab test links prove conformance facts clean

help:
	@echo 'make book    build the book and serve it on this machine'
	@echo 'make pdf     build the book and print it, with Chromium'
	@echo 'make lab     open the chapters in JupyterLab'
	@echo 'make test    run every test, every chapter, the book in a browser'
	@echo 'make links   follow every link that leaves the book (needs a network)'
	@echo 'make prove   judge every mutant of the exercises that have changed'
	@echo 'make setup   make or repair the environment, .venv'
	@echo 'make clean   remove what was built, .venv included'
	@echo 'make conformance   compare with PyTorch, where its judges are'
	@echo 'make facts   compare what the book says of its files: TORCH=...'

setup:
	@sh tools/setup.sh

book: setup
	@$(PY) tools/book.py --port $(PORT) --serve $(SERVE)

pdf: setup
	@$(PY) tools/book.py --serve 0
	@$(PY) tools/pdf.py

lab: setup
	@$(PY) -m jupyterlab chapters

test: setup
	@$(PY) -m pytest $(ARGS)

links: setup
	@$(PY) tools/links.py

prove: setup
	@$(PY) -m course prove

conformance: setup
	@$(PY) tools/conformance.py --judges $(JUDGES) --python '$(TORCH)'

facts: setup
	@$(PY) tools/facts.py --python '$(TORCH)'

clean:
	rm -rf .venv .venv-conformance _build .pytest_cache .hypothesis src/*.egg-info
	find src tests tools book -name __pycache__ -type d -prune -exec rm -rf {} +
