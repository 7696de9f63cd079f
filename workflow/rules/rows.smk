# A study of rows: tensors, a regression or a network. One CLI call each; see
# components.smk.


FEATURES = f"{RESULTS}/group_desc-rows_features.tsv"
PREPARED = expand("private/{site}/{study}/projected.npz", site=sites, study=study.study)
# The step over all sites, which is also the block of its options.
(STEP,) = {"tensors", "regression", "network"} & set(kind.steps)


rule validate:
    input:
        [images(study, sites, name) for name in sites],
        kind.public_files(study),
    output:
        FEATURES,
        [] if study.space is None else f"{RESULTS}/group_desc-brain_mask.nii.gz",
    log:
        f"private/_logs/{study.study}/validate.log",
    benchmark:
        f"private/_logs/{study.study}/validate.tsv"
    conda:
        "../envs/capeneuro.yaml"
    params:
        study=STUDY,
        options=section(study, "space", "rows", STEP),
        sites={
            name: section(site, "images", "people", "task")
            for name, site in sites.items()
        },
        version=__version__,
    shell:
        "capeneuro validate {params.study} --log {log}"


rule prepare:
    input:
        lambda w: images(study, sites, w.site),
        FEATURES,
    output:
        f"{PRIVATE}/projected.npz",
        f"{PRIVATE}/qc.html",
    log:
        f"private/{{site}}/{study.study}/logs/prepare.log",
    benchmark:
        f"private/{{site}}/{study.study}/logs/prepare.tsv"
    conda:
        "../envs/capeneuro.yaml"
    params:
        study=STUDY,
        options=section(study, "space", "rows"),
        layout=study.layout,
        site=lambda w: section(sites[w.site], "images", "people", "task"),
        version=__version__,
    shell:
        "capeneuro prepare {params.study} --site {wildcards.site} --log {log}"


# What a site does before it joins a federation: snakemake --cores N prepared
rule prepared:
    input:
        PREPARED,


rule maps:
    input:
        kind.released(study),
        FEATURES,
    output:
        kind.shown(study),
    log:
        f"private/_logs/{study.study}/maps.log",
    benchmark:
        f"private/_logs/{study.study}/maps.tsv"
    conda:
        "../envs/capeneuro.yaml"
    params:
        study=STUDY,
        options=section(study, "space", "rows"),
        kinds=KINDS,
        version=__version__,
    shell:
        "capeneuro maps {params.study} --log {log}"


rule reconstruct:
    input:
        f"{PRIVATE}/projected.npz",
        kind.released(study),
    output:
        f"{PRIVATE}/{kind.kept}",
    log:
        f"private/{{site}}/{study.study}/logs/reconstruct.log",
    benchmark:
        f"private/{{site}}/{study.study}/logs/reconstruct.tsv"
    conda:
        "../envs/capeneuro.yaml"
    params:
        study=STUDY,
        site=lambda w: section(sites[w.site], "images", "people", "task"),
        version=__version__,
    shell:
        "capeneuro reconstruct {params.study} --site {wildcards.site} --log {log}"


rule score:
    input:
        kind.released(study),
        kind.score_inputs(study),
    output:
        f"{RESULTS}/scores.tsv",
    log:
        f"private/_logs/{study.study}/score.log",
    benchmark:
        f"private/_logs/{study.study}/score.tsv"
    conda:
        "../envs/capeneuro.yaml"
    params:
        study=STUDY,
        options=section(study, "score"),
        kinds=KINDS,
        version=__version__,
    shell:
        "capeneuro score {params.study} --log {log}"


rule report:
    input:
        kind.released(study),
        kind.shown(study),
        f"{RESULTS}/scores.tsv",
    output:
        f"{RESULTS}/report.html",
        f"{RESULTS}/privacy.json",
    log:
        f"private/_logs/{study.study}/report.log",
    benchmark:
        f"private/_logs/{study.study}/report.tsv"
    conda:
        "../envs/capeneuro.yaml"
    params:
        study=STUDY,
        options=section(study, "study", "space", "rows", "score", STEP),
        kinds=KINDS,
        version=__version__,
    shell:
        "capeneuro report {params.study} --log {log}"


if study.score.reference:

    # Without privacy, to compare with; sites with private data refuse it.
    rule reference:
        input:
            PREPARED,
        output:
            [f"{RESULTS}/reference/{Path(name).name}" for name in kind.released(study)],
        log:
            f"private/_logs/{study.study}/reference.log",
        benchmark:
            f"private/_logs/{study.study}/reference.tsv"
        conda:
            "../envs/capeneuro.yaml"
        threads: len(sites)
        params:
            study=STUDY,
            step=STEP,
            options=section(study, "rows", "n_components", STEP),
            version=__version__,
        shell:
            "capeneuro {params.step} {params.study} --reference --threads {threads} --log {log}"
