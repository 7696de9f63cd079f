# The step over all sites of a study of rows, in one process.


# A rerun of a private step is a new release unless the request is identical; the sites'
# ledgers, outside any declared output, decide and charge.
rule rows:
    input:
        PREPARED,
    output:
        kind.released(study),
    log:
        f"private/_logs/{study.study}/rows.log",
    benchmark:
        f"private/_logs/{study.study}/rows.tsv"
    conda:
        "../envs/capeneuro.yaml"
    threads: len(sites)
    params:
        study=STUDY,
        step=STEP,
        options=section(study, "arm", "noise", "budget", "rows", "n_components", STEP),
        kinds=KINDS,
        version=__version__,
    shell:
        "capeneuro {params.step} {params.study} --threads {threads} --log {log}"
