# The steps over all sites, each site at its own institution: one command that drives
# them over the network. The kits are the machine's, not the study's: it finds them in
# CAPENEURO_SERVER_KIT and CAPENEURO_LEAD_KIT.


# A rerun asks the sites again; identical requests get identical answers, uncharged.
rule aggregate:
    input:
        rules.validate.output,
    output:
        kind.released(study),
    log:
        f"private/_logs/{study.study}/aggregate.log",
    benchmark:
        f"private/_logs/{study.study}/aggregate.tsv"
    conda:
        "../envs/capeneuro.yaml"
    params:
        study=STUDY,
        options=section(
            study,
            "arm",
            "noise",
            "budget",
            "n_components",
            *("pca", "ica", "fusion", "rows", "tensors", "regression", "network"),
        ),
        version=__version__,
    shell:
        "capeneuro aggregate {params.study} --log {log}"
