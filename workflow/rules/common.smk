# The study, checked before any job is planned. What each step is made from and writes is
# in capeneuro/studies/tasks.py. Keys of the study file are among it, so a changed key
# reruns exactly what depends on it.
import atexit
import time
from dataclasses import replace

from snakemake.exceptions import WorkflowError

from capeneuro.studies import registry
from capeneuro.studies.tasks import Task, note_settings, task_rules
from capeneuro.studies.workflow import (
    last_words,
    made_data,
    makes_data,
    preview,
    read_study,
    watch_jobs,
    write_messages,
)
from capeneuro.warm import Warm

STARTED = time.time()
if workflow.is_main_process and not workflow.dryrun:
    write_messages(logger)
try:
    most_jobs = workflow.resource_settings.nodes if workflow.is_main_process else None
    STUDY, study, sites, N_PARTS = read_study(workflow.configfiles, config, most_jobs)
    if workflow.is_main_process:
        put_back = note_settings(study, sites)
        # Nothing is made of the settings of a dry run.
        atexit.register(lambda: workflow.dryrun and put_back())
except Exception as error:
    raise WorkflowError(str(error))

# On a cluster (with `jobs`, which local runs have not) a job asks for as many cores as it
# has again when it starts, wherever; `workflow.local_exec` is not known yet.
HERE = workflow.resource_settings.nodes is None and not workflow.remote_exec
CORES = workflow.resource_settings.cores if HERE else None
THREADS = {"plan": CORES or 1, "report": CORES or 1, "prepare": 1, "reconstruct": 1}
THREADS["validate"] = max(1, len(sites))
# A run without privacy goes beside the private one; an aggregator has no sites.
RELEASE_THREADS = max(1, len(sites))
if CORES:
    RELEASE_THREADS = max(1, CORES // (2 if study.score.reference else 1))
TASKS = task_rules(study, N_PARTS)


def outputs(task):
    """Outputs as Snakemake has them: folders, and results that stay till replaced."""
    paths = task.outputs(sites)
    if task.is_release and not task.reference:
        # What was paid for stays until it is replaced: a refused rerun keeps it.
        return [update(path) for path in paths]
    if task.part:
        return [temp(path) for path in paths]
    return [directory(path[:-1]) if path.endswith("/") else path for path in paths]


def threads(task):
    """Processors that a step can use."""
    return THREADS.get(task.step, RELEASE_THREADS if task.takes_threads else 1)


def at(task, wildcards):
    """The task at the site, and with the part of its people, that the wildcards name."""
    if task.part:
        task = replace(task, part=wildcards.part)
    return task.at_site(wildcards.site) if task.site else task
