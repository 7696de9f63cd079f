# The same study without privacy, to compare with; sites with private data refuse it.


rule reference_pca:
    input:
        expand("private/{site}/{study}/projected.npz", site=sites, study=study.study),
    output:
        f"{RESULTS}/reference/group_desc-pca_subspace.npz",
    params:
        section(study, "pca", "n_components"),
        __version__,
    log:
        f"logs/{study.study}/reference_pca.log",
    benchmark:
        f"benchmarks/{study.study}/reference_pca.tsv"
    threads: workflow.cores
    shell:
        "capeneuro pca {STUDY} --reference --threads {threads} --log {log}"


rule reference_ica:
    input:
        f"{RESULTS}/reference/group_desc-pca_subspace.npz",
    output:
        f"{RESULTS}/reference/group_desc-ica_unmixing.npz",
    params:
        section(study, "ica"),
        __version__,
    log:
        f"logs/{study.study}/reference_ica.log",
    benchmark:
        f"benchmarks/{study.study}/reference_ica.tsv"
    threads: workflow.cores
    shell:
        "capeneuro ica {STUDY} --reference --threads {threads} --log {log}"
