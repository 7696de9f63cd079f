#!/bin/sh
# Make the environment and run the demo study to its report: ./demo.sh [cores]
set -eu
cd "$(dirname "$0")"
"${PYTHON:-python3}" -m venv .venv
.venv/bin/python -m pip install --quiet --editable ".[workflow]"
.venv/bin/snakemake --cores "${1:-2}"
echo "The report: results/demo/report.html"
