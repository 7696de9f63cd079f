# The steps over all sites, each site at its own institution: one command that drives
# them over the network. The kits are the machine's, not the study's: it finds them in
# CAPENEURO_SERVER_KIT and CAPENEURO_LEAD_KIT.


# A rerun asks the sites again; identical requests get identical answers, uncharged.
for m in MEMBERS:

    rule:
        name:
            f"{m.prefix}aggregate"
        input:
            m.kind.validated_files(),
            m.before,
        output:
            update(m.kind.released_files),
        log:
            f"private/_logs/{m.study.study}/aggregate.log",
        conda:
            "../envs/capeneuro.yaml"
        params:
            study=STUDY,
            stage=m.option,
            options=[m.kind.depends(step) for step in m.kind.result_files],
            version=__version__,
        shell:
            "capeneuro aggregate {params.study:q} {params.stage:q} --log {log:q}"
