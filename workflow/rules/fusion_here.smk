# The step over all sites of a fusion study, in one process.


# A rerun of a private step is a new release unless the request is identical; the sites'
# ledgers, outside any declared output, decide and charge.
rule cca:
    input:
        expand("private/{site}/{study}/projected.npz", site=sites, study=study.study),
    output:
        kind.released(study),
    log:
        f"private/_logs/{study.study}/cca.log",
    benchmark:
        f"private/_logs/{study.study}/cca.tsv"
    conda:
        "../envs/capeneuro.yaml"
    threads: len(sites)
    params:
        study=STUDY,
        options=section(study, "arm", "noise", "budget", "fusion", "n_components"),
        kinds=KINDS,
        version=__version__,
    shell:
        "capeneuro cca {params.study} --threads {threads} --log {log}"
