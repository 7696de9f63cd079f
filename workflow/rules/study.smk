# The steps of a study of any kind, one CLI call each, of each of its stages; what differs
# between kinds is in capeneuro/studies/. Messages and progress go to the terminal; --log
# keeps a copy.

# The gate. It is nobody's input, or each plan would rerun all; it goes before the rest
# and takes all cores, and each step over all sites asks it again by itself.
PLANNED = f"private/_aggregator/{study.study}/planned.json"


rule plan:
    input:
        [m.kind.validated_files() for m in MEMBERS],
        [m.sizes for m in MEMBERS],
    output:
        PLANNED,
    log:
        f"private/_logs/{study.study}/plan.log",
    priority: 100
    conda:
        "../envs/capeneuro.yaml"
    threads: CORES or 1
    params:
        study=STUDY,
        options=[m.kind.depends(s) for m in MEMBERS for s in m.kind.result_files],
        accepts=section(study, "accept", "expected"),
        version=__version__,
    shell:
        "capeneuro plan {params.study:q} --log {log:q}"


for m in MEMBERS:

    rule:
        name:
            f"{m.prefix}validate"
        input:
            [images(m.study, sites, name) for name in sites],
            m.kind.public_files(),
        output:
            m.kind.validated_files(),
            m.sizes,
        log:
            f"private/_logs/{m.study.study}/validate.log",
        conda:
            "../envs/capeneuro.yaml"
        threads: max(1, len(sites))
        params:
            study=STUDY,
            stage=m.option,
            options=m.kind.depends("validate"),
            sites={
                n: section(own, *m.kind.site_keys["validate"])
                for n, own in sites.items()
            },
            version=__version__,
        shell:
            "capeneuro validate {params.study:q} {params.stage:q} --threads {threads} --log {log:q}"

    rule:
        name:
            f"{m.prefix}prepare"
        input:
            lambda w, m=m: images(m.study, sites, w.site),
            lambda w, m=m: handed_on(m.study, w.site),
            m.kind.validated_files(),
        output:
            f"{m.private}/projected.npz",
            f"{m.private}/qc.html",
        log:
            f"{m.private}/logs/prepare.log",
        conda:
            "../envs/capeneuro.yaml"
        threads: 1
        params:
            study=STUDY,
            stage=m.option,
            options=m.kind.depends("prepare"),
            site=lambda w, m=m: section(sites[w.site], *m.kind.site_keys["prepare"]),
            version=__version__,
        shell:
            "capeneuro prepare {params.study:q} {params.stage:q} --site {wildcards.site:q} --threads {threads} --log {log:q}"

    rule:
        name:
            f"{m.prefix}maps"
        input:
            m.kind.released_files,
            m.kind.validated_files(),
        output:
            m.kind.map_files(),
        log:
            f"private/_logs/{m.study.study}/maps.log",
        localrule: True
        conda:
            "../envs/capeneuro.yaml"
        params:
            study=STUDY,
            stage=m.option,
            options=m.kind.depends("maps"),
            kinds=KINDS,
            version=__version__,
        shell:
            "capeneuro maps {params.study:q} {params.stage:q} --log {log:q}"

    rule:
        name:
            f"{m.prefix}reconstruct"
        input:
            f"{m.private}/projected.npz",
            m.kind.released_files,
            m.kind.validated_files(),
        output:
            [
                f"{m.private}/{name}"
                for name in m.kind.site_files
                if not name.endswith("/")
            ],
            [
                directory(f"{m.private}/{n[:-1]}")
                for n in m.kind.site_files
                if n.endswith("/")
            ],
        log:
            f"{m.private}/logs/reconstruct.log",
        conda:
            "../envs/capeneuro.yaml"
        params:
            study=STUDY,
            stage=m.option,
            site=lambda w, m=m: section(sites[w.site], *m.kind.site_keys["reconstruct"]),
            version=__version__,
        shell:
            "capeneuro reconstruct {params.study:q} {params.stage:q} --site {wildcards.site:q} --log {log:q}"

    rule:
        name:
            f"{m.prefix}score"
        input:
            m.kind.released_files,
            m.kind.validated_files(),
            m.kind.score_inputs(),
        output:
            f"{m.study.results}/scores.tsv",
        log:
            f"private/_logs/{m.study.study}/score.log",
        localrule: True
        conda:
            "../envs/capeneuro.yaml"
        params:
            study=STUDY,
            stage=m.option,
            options=m.kind.depends("score"),
            kinds=KINDS,
            version=__version__,
        shell:
            "capeneuro score {params.study:q} {params.stage:q} --log {log:q}"

    if m.study.score.reference:
        # The same without privacy, to compare with; sites with private data refuse it.
        for k, step in enumerate(m.kind.result_files):

            rule:
                name:
                    f"{m.prefix}reference_{step}"
                input:
                    m.kind.reference_files[k - 1] if k else m.prepared,
                output:
                    m.kind.reference_files[k],
                log:
                    f"private/_logs/{m.study.study}/reference_{step}.log",
                conda:
                    "../envs/capeneuro.yaml"
                threads: STAGE_THREADS
                params:
                    study=STUDY,
                    stage=m.option,
                    step=step,
                    options=m.kind.depends(f"reference_{step}"),
                    version=__version__,
                shell:
                    "capeneuro {params.step:q} {params.study:q} {params.stage:q} --reference --threads {threads} --log {log:q}"


# What a site does before it joins a federation: snakemake --cores N prepared
rule prepared:
    input:
        PLANNED,
        MEMBERS[0].prepared,
    localrule: True


rule report:
    input:
        [m.reported for m in MEMBERS],
    output:
        f"{RESULTS}/report.html",
        f"{RESULTS}/privacy.json",
    log:
        f"private/_logs/{study.study}/report.log",
    localrule: True
    conda:
        "../envs/capeneuro.yaml"
    threads: CORES or 1
    params:
        study=STUDY,
        options=[m.kind.depends("report") for m in MEMBERS],
        kinds=KINDS,
        version=__version__,
    shell:
        "capeneuro report {params.study:q} --threads {threads} --log {log:q}"
