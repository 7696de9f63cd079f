# Experiments over grids, from the folder of the source checkout:
#   snakemake -s workflow/figures.smk --cores 2 --configfile config/figures/smoke.yaml
# Several files may follow --configfile; without it all of config/figures/ are made. A
# dry run (-n) prints how many cells have yet to run.
from snakemake.utils import min_version

min_version("9.20")


include: "rules/figures.smk"


localrules:
    figures_done,
    figure_table,
    figure_plot,


rule figures_done:
    default_target: True
    input:
        expand("results/figures/{figure}/goals.tsv", figure=FIGURES),
        expand("results/figures/{figure}/{figure}.png", figure=FIGURES),
