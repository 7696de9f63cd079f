# One CLI call each. Messages and progress go to the terminal; --log keeps a copy.


rule validate:
    input:
        [images(study, sites, name) for name in sites],
        kind.public_files(study),
    output:
        f"{RESULTS}/group_desc-brain_mask.nii.gz",
    log:
        f"private/_logs/{study.study}/validate.log",
    benchmark:
        f"private/_logs/{study.study}/validate.tsv"
    conda:
        "../envs/capeneuro.yaml"
    params:
        study=STUDY,
        options=section(study, "space", "n_components"),
        sites={name: section(site, "images", "task") for name, site in sites.items()},
        version=__version__,
    shell:
        "capeneuro validate {params.study} --log {log}"


rule prepare:
    input:
        lambda w: images(study, sites, w.site),
        f"{RESULTS}/group_desc-brain_mask.nii.gz",
    output:
        f"{PRIVATE}/projected.npz",
        f"{PRIVATE}/qc.html",
    log:
        f"private/{{site}}/{study.study}/logs/prepare.log",
    benchmark:
        f"private/{{site}}/{study.study}/logs/prepare.tsv"
    conda:
        "../envs/capeneuro.yaml"
    threads: 1
    params:
        study=STUDY,
        options=section(study, "space", "cleaning", "n_components"),
        norm_bound=study.pca.norm_bound,
        site=lambda w: section(
            sites[w.site], "images", "task", "mask", "repetition_time"
        ),
        version=__version__,
    shell:
        "capeneuro prepare {params.study} --site {wildcards.site} --threads {threads} --log {log}"


# What a site does before it joins a federation: snakemake --cores N prepared
rule prepared:
    input:
        expand("private/{site}/{study}/projected.npz", site=sites, study=study.study),


rule maps:
    input:
        f"{RESULTS}/group_desc-ica_unmixing.npz",
        f"{RESULTS}/group_desc-brain_mask.nii.gz",
    output:
        f"{RESULTS}/group_desc-ica_components.nii.gz",
        f"{RESULTS}/group_desc-ica_components.json",
        f"{RESULTS}/group_desc-ica_components.tsv",
        f"{RESULTS}/group_desc-icaz_components.nii.gz",
        f"{RESULTS}/group_desc-icaz_components.json",
    log:
        f"private/_logs/{study.study}/maps.log",
    benchmark:
        f"private/_logs/{study.study}/maps.tsv"
    conda:
        "../envs/capeneuro.yaml"
    params:
        study=STUDY,
        options=section(study, "space"),
        kinds=KINDS,
        version=__version__,
    shell:
        "capeneuro maps {params.study} --log {log}"


rule reconstruct:
    input:
        f"{PRIVATE}/projected.npz",
        f"{RESULTS}/group_desc-ica_unmixing.npz",
        f"{RESULTS}/group_desc-brain_mask.nii.gz",
    output:
        f"{PRIVATE}/timecourses.tsv",
        f"{PRIVATE}/spectra.tsv",
        f"{PRIVATE}/connectivity.tsv",
        f"{PRIVATE}/reconstruction.html",
        directory(f"{PRIVATE}/dualregression"),
    log:
        f"private/{{site}}/{study.study}/logs/reconstruct.log",
    benchmark:
        f"private/{{site}}/{study.study}/logs/reconstruct.tsv"
    conda:
        "../envs/capeneuro.yaml"
    params:
        study=STUDY,
        site=lambda w: section(sites[w.site], "images", "task", "repetition_time"),
        version=__version__,
    shell:
        "capeneuro reconstruct {params.study} --site {wildcards.site} --log {log}"


rule score:
    input:
        f"{RESULTS}/group_desc-ica_unmixing.npz",
        f"{RESULTS}/group_desc-brain_mask.nii.gz",
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
        f"{RESULTS}/group_desc-pca_subspace.npz",
        f"{RESULTS}/group_desc-ica_unmixing.npz",
        f"{RESULTS}/group_desc-icaz_components.nii.gz",
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
        options=section(study, "study", "space", "cleaning", "pca", "score"),
        kinds=KINDS,
        version=__version__,
    shell:
        "capeneuro report {params.study} --log {log}"


if study.score.reference:

    # The same study without privacy, to compare with; sites with private data refuse it.
    rule reference_pca:
        input:
            expand(
                "private/{site}/{study}/projected.npz", site=sites, study=study.study
            ),
        output:
            f"{RESULTS}/reference/group_desc-pca_subspace.npz",
        log:
            f"private/_logs/{study.study}/reference_pca.log",
        benchmark:
            f"private/_logs/{study.study}/reference_pca.tsv"
        conda:
            "../envs/capeneuro.yaml"
        threads: len(sites)
        params:
            study=STUDY,
            options=section(study, "pca", "n_components"),
            unit=study.budget.unit,
            version=__version__,
        shell:
            "capeneuro pca {params.study} --reference --threads {threads} --log {log}"

    rule reference_ica:
        input:
            f"{RESULTS}/reference/group_desc-pca_subspace.npz",
        output:
            f"{RESULTS}/reference/group_desc-ica_unmixing.npz",
        log:
            f"private/_logs/{study.study}/reference_ica.log",
        benchmark:
            f"private/_logs/{study.study}/reference_ica.tsv"
        conda:
            "../envs/capeneuro.yaml"
        threads: len(sites)
        params:
            study=STUDY,
            options=section(study, "ica"),
            version=__version__,
        shell:
            "capeneuro ica {params.study} --reference --threads {threads} --log {log}"
