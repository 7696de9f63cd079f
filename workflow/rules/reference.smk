# The same study without privacy, to compare with; sites with private data refuse it.


rule reference_pca:
    input:
        expand("private/{site}/{study}/projected.npz", site=sites, study=study.study),
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
