# The steps of a study of any kind, one CLI call each; what differs between kinds is in
# capeneuro/studies/. Messages and progress go to the terminal; --log keeps a copy.


PREPARED = expand("private/{site}/{study}/projected.npz", site=sites, study=study.study)
VALIDATED = kind.validated(study)
# The gate. It is nobody's input, or each plan would rerun all; it goes before the rest
# and takes all cores, and each step over all sites asks it again by itself.
PLANNED = f"private/_aggregator/{study.study}/planned.json"
RELEASED = kind.released(study)


rule validate:
    input:
        [images(study, sites, name) for name in sites],
        kind.public_files(study),
    output:
        VALIDATED,
    log:
        f"private/_logs/{study.study}/validate.log",
    conda:
        "../envs/capeneuro.yaml"
    threads: len(sites)
    params:
        study=STUDY,
        options=kind.depends(study, "validate"),
        sites={n: section(own, *kind.site_keys["validate"]) for n, own in sites.items()},
        version=__version__,
    shell:
        "capeneuro validate {params.study:q} --threads {threads} --log {log:q}"


rule plan:
    input:
        VALIDATED,
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
        options=[kind.depends(study, stage) for stage, _ in kind.stages],
        accepts=section(study, "accept", "expected"),
        version=__version__,
    shell:
        "capeneuro plan {params.study:q} --log {log:q}"


rule prepare:
    input:
        lambda w: images(study, sites, w.site),
        VALIDATED,
    output:
        f"{PRIVATE}/projected.npz",
        f"{PRIVATE}/qc.html",
    log:
        f"private/{{site}}/{study.study}/logs/prepare.log",
    conda:
        "../envs/capeneuro.yaml"
    threads: 1
    params:
        study=STUDY,
        options=kind.depends(study, "prepare"),
        site=lambda w: section(sites[w.site], *kind.site_keys["prepare"]),
        version=__version__,
    shell:
        "capeneuro prepare {params.study:q} --site {wildcards.site:q} --threads {threads} --log {log:q}"


# What a site does before it joins a federation: snakemake --cores N prepared
rule prepared:
    input:
        PLANNED,
        PREPARED,


rule maps:
    input:
        RELEASED,
        VALIDATED,
    output:
        kind.shown(study),
    log:
        f"private/_logs/{study.study}/maps.log",
    conda:
        "../envs/capeneuro.yaml"
    params:
        study=STUDY,
        options=kind.depends(study, "maps"),
        kinds=KINDS,
        version=__version__,
    shell:
        "capeneuro maps {params.study:q} --log {log:q}"


rule reconstruct:
    input:
        f"{PRIVATE}/projected.npz",
        RELEASED,
        VALIDATED,
    output:
        [f"{PRIVATE}/{name}" for name in kind.kept if not name.endswith("/")],
        [directory(f"{PRIVATE}/{n[:-1]}") for n in kind.kept if n.endswith("/")],
    log:
        f"private/{{site}}/{study.study}/logs/reconstruct.log",
    conda:
        "../envs/capeneuro.yaml"
    params:
        study=STUDY,
        site=lambda w: section(sites[w.site], *kind.site_keys["reconstruct"]),
        version=__version__,
    shell:
        "capeneuro reconstruct {params.study:q} --site {wildcards.site:q} --log {log:q}"


rule score:
    input:
        RELEASED,
        VALIDATED,
        kind.score_inputs(study),
    output:
        f"{RESULTS}/scores.tsv",
    log:
        f"private/_logs/{study.study}/score.log",
    conda:
        "../envs/capeneuro.yaml"
    params:
        study=STUDY,
        options=kind.depends(study, "score"),
        kinds=KINDS,
        version=__version__,
    shell:
        "capeneuro score {params.study:q} --log {log:q}"


rule report:
    input:
        RELEASED,
        kind.shown(study),
        f"{RESULTS}/scores.tsv",
    output:
        f"{RESULTS}/report.html",
        f"{RESULTS}/privacy.json",
    log:
        f"private/_logs/{study.study}/report.log",
    conda:
        "../envs/capeneuro.yaml"
    threads: CORES or 1
    params:
        study=STUDY,
        options=kind.depends(study, "report"),
        kinds=KINDS,
        version=__version__,
    shell:
        "capeneuro report {params.study:q} --threads {threads} --log {log:q}"


if study.score.reference:

    # The same study without privacy, to compare with; sites with private data refuse it.
    for k, (stage, file) in enumerate(kind.stages):

        rule:
            name:
                f"reference_{stage}"
            input:
                [f"{RESULTS}/reference/{kind.stages[k - 1][1]}"] if k else PREPARED,
            output:
                f"{RESULTS}/reference/{file}",
            log:
                f"private/_logs/{study.study}/reference_{stage}.log",
            conda:
                "../envs/capeneuro.yaml"
            threads: STAGE_THREADS
            params:
                study=STUDY,
                stage=stage,
                options=kind.depends(study, f"reference_{stage}"),
                version=__version__,
            shell:
                "capeneuro {params.stage:q} {params.study:q} --reference --threads {threads} --log {log:q}"
