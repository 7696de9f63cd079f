# One CLI call each. Messages and progress go to the terminal; --log keeps a copy.


rule validate:
    input:
        made_data(study, sites),
    output:
        f"{RESULTS}/group_desc-brain_mask.nii.gz",
    params:
        section(study, "space", "n_components", "arm", "budget"),
        {name: section(site, "images", "task") for name, site in sites.items()},
        __version__,
    log:
        f"logs/{study.study}/validate.log",
    benchmark:
        f"benchmarks/{study.study}/validate.tsv"
    shell:
        "capeneuro validate {STUDY} --log {log}"


rule prepare:
    input:
        f"{RESULTS}/group_desc-brain_mask.nii.gz",
    output:
        f"{PRIVATE}/projected.npz",
        f"{PRIVATE}/qc.html",
    params:
        section(study, "space", "cleaning", "n_components"),
        study.pca.norm_bound,
        lambda w: section(sites[w.site], "images", "task", "mask", "repetition_time"),
        __version__,
    log:
        f"private/{{site}}/{study.study}/logs/prepare.log",
    benchmark:
        f"benchmarks/{study.study}/prepare-{{site}}.tsv"
    shell:
        "capeneuro prepare {STUDY} --site {wildcards.site} --log {log}"


# A rerun of a private step is a new release unless the request is identical; the sites'
# ledgers, outside any declared output, decide and charge.
rule pca:
    input:
        expand("private/{site}/{study}/projected.npz", site=sites, study=study.study),
    output:
        f"{RESULTS}/group_desc-pca_subspace.npz",
    params:
        section(study, "arm", "budget", "pca", "n_components"),
        __version__,
    log:
        f"logs/{study.study}/pca.log",
    benchmark:
        f"benchmarks/{study.study}/pca.tsv"
    threads: workflow.cores
    shell:
        "capeneuro pca {STUDY} --threads {threads} --log {log}"


rule ica:
    input:
        f"{RESULTS}/group_desc-pca_subspace.npz",
        expand("private/{site}/{study}/projected.npz", site=sites, study=study.study),
    output:
        f"{RESULTS}/group_desc-ica_unmixing.npz",
    params:
        section(study, "arm", "budget", "ica"),
        __version__,
    log:
        f"logs/{study.study}/ica.log",
    benchmark:
        f"benchmarks/{study.study}/ica.tsv"
    threads: workflow.cores
    shell:
        "capeneuro ica {STUDY} --threads {threads} --log {log}"


rule maps:
    input:
        f"{RESULTS}/group_desc-ica_unmixing.npz",
        f"{RESULTS}/group_desc-brain_mask.nii.gz",
    output:
        f"{RESULTS}/group_desc-ica_components.nii.gz",
        f"{RESULTS}/group_desc-ica_components.json",
    params:
        section(study, "space"),
        __version__,
    log:
        f"logs/{study.study}/maps.log",
    benchmark:
        f"benchmarks/{study.study}/maps.tsv"
    shell:
        "capeneuro maps {STUDY} --log {log}"


rule reconstruct:
    input:
        f"{PRIVATE}/projected.npz",
        f"{RESULTS}/group_desc-ica_unmixing.npz",
    output:
        f"{PRIVATE}/timecourses.tsv",
    params:
        __version__,
    log:
        f"private/{{site}}/{study.study}/logs/reconstruct.log",
    benchmark:
        f"benchmarks/{study.study}/reconstruct-{{site}}.tsv"
    shell:
        "capeneuro reconstruct {STUDY} --site {wildcards.site} --log {log}"


rule score:
    input:
        f"{RESULTS}/group_desc-ica_unmixing.npz",
        f"{RESULTS}/group_desc-brain_mask.nii.gz",
        score_inputs(study),
    output:
        f"{RESULTS}/scores.tsv",
    params:
        section(study, "score"),
        __version__,
    log:
        f"logs/{study.study}/score.log",
    benchmark:
        f"benchmarks/{study.study}/score.tsv"
    shell:
        "capeneuro score {STUDY} --log {log}"


rule report:
    input:
        f"{RESULTS}/group_desc-pca_subspace.npz",
        f"{RESULTS}/group_desc-ica_unmixing.npz",
        f"{RESULTS}/group_desc-ica_components.nii.gz",
        f"{RESULTS}/scores.tsv",
    output:
        f"{RESULTS}/report.html",
    params:
        section(study),
        __version__,
    log:
        f"logs/{study.study}/report.log",
    benchmark:
        f"benchmarks/{study.study}/report.tsv"
    shell:
        "capeneuro report {STUDY} --log {log}"
