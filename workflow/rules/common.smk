# The study, checked before any job is planned. Rules depend on sections of it through
# `params`, so a changed key reruns exactly what depends on it.
import time

from snakemake.exceptions import WorkflowError

from capeneuro import __version__
from capeneuro.studies.workflow import (
    handed_on,
    hear,
    images,
    kinds,
    last_words,
    made_data,
    makes_data,
    members,
    names,
    preview,
    read_study,
    section,
    watch_jobs,
)
from capeneuro.warm import Warm

STARTED = time.time()
if workflow.is_main_process and not workflow.dryrun:
    hear(logger)
try:
    STUDY, study, sites = read_study(workflow.configfiles, config)
except Exception as error:
    raise WorkflowError(str(error))

# What every output is stamped with, as far as the sites' files are here.
KINDS = {name: site.data for name, site in sites.items()}
RESULTS = str(study.results)
# Its stages; a study of one is its own.
MEMBERS = members(study, sites)
# On a cluster (with `jobs`, which local runs have not) a job asks for as many cores as it
# has again when it starts, wherever; `workflow.local_exec` is not known yet.
HERE = workflow.resource_settings.nodes is None and not workflow.remote_exec
CORES = workflow.resource_settings.cores if HERE else None
# A run without privacy goes beside the private one.
STAGE_THREADS = max(1, len(sites))  # an aggregator has none of them
if CORES:
    STAGE_THREADS = max(1, CORES // (2 if study.score.reference else 1))
