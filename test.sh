#!/bin/sh
# Make the environment and run the tests: ./test.sh [pytest options]
set -eu
cd "$(dirname "$0")"
"${PYTHON:-python3}" -m venv .venv
.venv/bin/python -m pip install --quiet --editable ".[exact,federated,eeg,slurm,dev]"
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/snakefmt --check workflow papers/Snakefile
# A file's tests share its studies, so one process runs them all.
.venv/bin/python -m pytest --numprocesses 2 --dist loadfile "$@"
