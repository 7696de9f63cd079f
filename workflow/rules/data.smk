# Data makers: simulated or painted images or tables, where the study asks for them.

MADE = Task(study, "make_data")


rule make_data:
    input:
        MADE.inputs(sites),
    output:
        MADE.outputs(sites),
    log:
        MADE.log,
    conda:
        "../envs/capeneuro.yaml"
    threads: len(sites)
    params:
        study=STUDY,
    shell:
        "python -m sim {params.study:q} --threads {threads} --log {log:q}"
