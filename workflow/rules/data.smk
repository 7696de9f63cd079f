# Data makers: simulated or painted images, where the study asks for them.


rule make_data:
    output:
        made_data(study, sites),
    params:
        section(study, "data", "n_components"),
        __version__,
    log:
        f"logs/{study.study}/make_data.log",
    benchmark:
        f"benchmarks/{study.study}/make_data.tsv"
    shell:
        "python -m sim {STUDY} --log {log}"
