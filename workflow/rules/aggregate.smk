# The steps over all sites, each site at its own institution: one command that drives
# them over the network. The kits are the machine's, not the study's: it finds them in
# CAPENEURO_SERVER_KIT and CAPENEURO_LEAD_KIT.


# A rerun asks the sites again; identical requests get identical answers, uncharged.
rule aggregate:
    input:
        VALIDATED,
    output:
        update(RELEASED),
    log:
        f"private/_logs/{study.study}/aggregate.log",
    conda:
        "../envs/capeneuro.yaml"
    params:
        study=STUDY,
        options=[kind.depends(study, stage) for stage, _ in kind.stages],
        version=__version__,
    shell:
        "capeneuro aggregate {params.study:q} --log {log:q}"
