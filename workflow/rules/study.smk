# The steps of a study of any kind, one CLI call each, of each of its stages; what differs
# between kinds is in capeneuro/studies/. Messages and progress go to the terminal; --log
# keeps a copy.
#
# A rerun of a private step is a new release unless the request is identical; the sites'
# ledgers, outside any declared output, decide and charge. `aggregate` asks sites that
# work elsewhere; the kits are the machine's, not the study's: it finds them in
# CAPENEURO_SERVER_KIT and CAPENEURO_LEAD_KIT.

for task in TASKS:

    rule:
        name:
            task.rule
        input:
            lambda w, task=task: at(task, w).inputs(sites),
        output:
            outputs(task),
        log:
            task.log,
        # The gate goes before the rest, and each step over all sites asks it again.
        priority: 100 if task.step == "plan" else 0
        # A profile may restart what works at one site: it takes long and charges nothing.
        retries: None if task.site else 0
        localrule: task.step in ("maps", "score", "report")
        conda:
            "../envs/capeneuro.yaml"
        threads: threads(task)
        params:
            study=STUDY,
            step=task.step,
            options=lambda w, task=task: at(task, w).command_options,
            # Of the job when it runs: another number of them is no reason to rerun.
            threads='--threads "$OMP_NUM_THREADS"' if task.takes_threads else "",
        shell:
            "capeneuro {params.step:q} {params.study:q} {params.options:q} {params.threads} --log {log:q}"


# What a site does before it joins a federation: snakemake --cores N prepared
rule prepared:
    input:
        Task(study, "plan").outputs(sites),
        [
            path
            for task in TASKS
            if task.step == "prepare"
            and not task.part
            and task.study is [*study.members.values()][0]
            for site in sites
            for path in task.at_site(site).outputs(sites)
        ],
    localrule: True
