# The steps over all sites, in one process each.

# A rerun of a private step is a new release unless the request is identical; the sites'
# ledgers, outside any declared output, decide and charge.
for k, (stage, file) in enumerate(kind.stages):

    rule:
        name:
            stage
        input:
            [f"{RESULTS}/{kind.stages[k - 1][1]}"] if k else [],
            PREPARED,
        output:
            # What was paid for stays until it is replaced: a refused rerun keeps it.
            update(f"{RESULTS}/{file}"),
        log:
            f"private/_logs/{study.study}/{stage}.log",
        conda:
            "../envs/capeneuro.yaml"
        threads: STAGE_THREADS
        params:
            study=STUDY,
            stage=stage,
            options=kind.depends(study, stage),
            kinds=KINDS,
            version=__version__,
        shell:
            "capeneuro {params.stage:q} {params.study:q} --threads {threads} --log {log:q}"
