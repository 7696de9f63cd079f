# The steps over all sites, in one process each.

# A rerun of a private step is a new release unless the request is identical; the sites'
# ledgers, outside any declared output, decide and charge.
for m in MEMBERS:
    for k, step in enumerate(m.kind.result_files):

        rule:
            name:
                f"{m.prefix}{step}"
            input:
                m.kind.released_files[k - 1] if k else [],
                m.prepared,
            output:
                # What was paid for stays until it is replaced: a refused rerun keeps it.
                update(m.kind.released_files[k]),
            log:
                f"private/_logs/{m.study.study}/{step}.log",
            conda:
                "../envs/capeneuro.yaml"
            threads: STAGE_THREADS
            params:
                study=STUDY,
                stage=m.option,
                step=step,
                options=m.kind.depends(step),
                kinds=KINDS,
                version=__version__,
            shell:
                "capeneuro {params.step:q} {params.study:q} {params.stage:q} --threads {threads} --log {log:q}"
