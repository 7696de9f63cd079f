# The steps over all sites, in one process each.


# A rerun of a private step is a new release unless the request is identical; the sites'
# ledgers, outside any declared output, decide and charge.
rule pca:
    input:
        expand("private/{site}/{study}/projected.npz", site=sites, study=study.study),
    output:
        f"{RESULTS}/group_desc-pca_subspace.npz",
    log:
        f"private/_logs/{study.study}/pca.log",
    benchmark:
        f"private/_logs/{study.study}/pca.tsv"
    conda:
        "../envs/capeneuro.yaml"
    threads: len(sites)
    params:
        study=STUDY,
        options=section(study, "arm", "noise", "budget", "pca", "n_components"),
        # PCA's share of the budget depends on it.
        independence=study.ica.independence,
        kinds=KINDS,
        version=__version__,
    shell:
        "capeneuro pca {params.study} --threads {threads} --log {log}"


rule ica:
    input:
        f"{RESULTS}/group_desc-pca_subspace.npz",
        expand("private/{site}/{study}/projected.npz", site=sites, study=study.study),
    output:
        f"{RESULTS}/group_desc-ica_unmixing.npz",
    log:
        f"private/_logs/{study.study}/ica.log",
    benchmark:
        f"private/_logs/{study.study}/ica.tsv"
    conda:
        "../envs/capeneuro.yaml"
    threads: len(sites)
    params:
        study=STUDY,
        options=section(study, "arm", "noise", "budget", "ica"),
        kinds=KINDS,
        version=__version__,
    shell:
        "capeneuro ica {params.study} --threads {threads} --log {log}"
