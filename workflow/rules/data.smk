# Data makers: simulated or painted images or tables, where the study asks for them.


rule make_data:
    output:
        made_data(study, sites),
    log:
        f"private/_logs/{study.study}/make_data.log",
    conda:
        "../envs/capeneuro.yaml"
    threads: len(sites)
    params:
        study=STUDY,
        options=[m.kind.depends("make_data") for m in MEMBERS],
        version=__version__,
    shell:
        "python -m sim {params.study:q} --threads {threads} --log {log:q}"
