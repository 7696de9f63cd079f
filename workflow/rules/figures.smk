# One YAML is one figure: cells -> tables -> plot. A cell's file is named after a digest
# of its options, so finished cells stay and a changed option is another cell.
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

from capeneuro import figures
from capeneuro.workflow import find_commands, section

try:
    find_commands()
    FIGURES = figures.load_all(
        workflow.configfiles or sorted(Path("config/figures").glob("*.yaml"))
    )
except Exception as error:
    raise WorkflowError(str(error))

if workflow.config_settings.config:
    raise WorkflowError("a figure is one file; write overrides into it, not --config")

CELLS = {name: figures.cells(figure) for name, (_, figure) in FIGURES.items()}
for _, figure in FIGURES.values():
    print(figures.progress(figure), file=sys.stderr)


wildcard_constraints:
    figure="|".join(FIGURES),
    cell="[0-9a-f]{16}",


# Simulated or public data only; its privacy noise is fresh in each run.
rule figure_cell:
    output:
        "results/figures/{figure}/cells/{cell}.json",
    log:
        "results/figures/{figure}/logs/{cell}.log",
    conda:
        "../envs/capeneuro.yaml"
    threads: 1
    params:
        path=lambda w: FIGURES[w.figure][0],
    shell:
        "python -m benchmarks.cells {params.path} {wildcards.cell} 2> >(tee {log} >&2)"


rule figure_table:
    input:
        lambda w: [str(cell.path) for cell in CELLS[w.figure]],
    output:
        "results/figures/{figure}/table.tsv",
        "results/figures/{figure}/summary.tsv",
        "results/figures/{figure}/goals.tsv",
    log:
        "results/figures/{figure}/logs/table.log",
    conda:
        "../envs/capeneuro.yaml"
    params:
        path=lambda w: FIGURES[w.figure][0],
        options=lambda w: section(
            FIGURES[w.figure][1], "goals", "repeat", "scores", "plot"
        ),
    shell:
        "capeneuro figure table {params.path} --log {log}"


rule figure_plot:
    input:
        "results/figures/{figure}/summary.tsv",
    output:
        "results/figures/{figure}/{figure}.png",
        "results/figures/{figure}/{figure}.svg",
    log:
        "results/figures/{figure}/logs/plot.log",
    conda:
        "../envs/capeneuro.yaml"
    params:
        path=lambda w: FIGURES[w.figure][0],
        options=lambda w: section(FIGURES[w.figure][1], "goals", "plot", "title"),
    shell:
        "capeneuro figure plot {params.path} --log {log}"
