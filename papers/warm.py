"""Imported by the process that a run of Snakemake forks its cells from.

Cells are short, and each would spend two seconds on imports. What the experiments are
made of is noted as well: a cell says of which code it is, even where a file is edited
while it runs.
"""

import importlib

from papers import plots, provenance
from papers.commands import EXPERIMENTS

__all__ = ["plots"]

for _experiment in EXPERIMENTS.values():
    _module = _experiment.split(":")[0]
    provenance.code(_module)
    importlib.import_module(_module)
