"""Causes and remedies of failures of Snakemake and SLURM: one line each.

Both print many lines where something fails, or none where they run quietly. Snakemake's
messages are written to a file, :data:`MESSAGES`; known failures are looked up there in
one table a program, and a failure that is not known is printed as it is.
"""

import errno
import logging
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from capeneuro.machine import INTERRUPTED, REMEDIES

# Snakemake's messages of the run that is under way, or of the last one.
MESSAGES = Path(".snakemake/log/capeneuro.txt")
# Caches of Snakemake and matplotlib.
CACHES = {"XDG_CACHE_HOME": "cache", "MPLCONFIGDIR": "cache/matplotlib"}
# A step that ended by itself wrote one of these into its log.
ENDED = re.compile(r"^(took |ended with status |interrupted)", re.MULTILINE)

# Pattern of a message of Snakemake, and the line for the user; groups fill it in. The
# first pattern that matches counts.
SNAKEMAKE: Mapping[str, str] = MappingProxyType(
    {
        r"Terminating processes on user request": INTERRUPTED,
        r"unrecognized arguments: (.+)": "after `--`: Snakemake knows no argument "
        "{0}; snakemake --help lists them, and a profile's keys are such arguments",
        r"Couldn't parse config file: ((?s:.+?line \d+)|.+)": "a profile is not "
        "YAML: {0}; mend it",
        r"invalid choice: '(.+?)' \(choose from (.+)\)": "after `--`: there is no {0}; "
        "known are {1}; an executor is a package: pip install 'capeneuro[slurm]'",
        r"requires snakemake version ([\d.]+) or later|"
        r"Expecting Snakemake version ([\d.]+) or higher": "Snakemake is too old: "
        "{0}{1} or later is needed; pip install -U 'capeneuro[workflow]'",
        r"MissingRuleException:\s*No rule to produce (\S+)": "after `--`: no step and "
        "no file is called {0}; capeneuro run STUDY -n lists the steps",
        r"MissingInputException(?s:.*?)affected files:\s*(\S.*)": "{0}: file not found "
        "and no step makes it; bring it back, or mend the key that names it",
        r"CyclicGraphException(?s:.*?)[Cc]yclic dependency on rule (\w+)": ""
        "step {0} would need its own output: two keys name the same folder or file; "
        "let the data lie elsewhere than results/ and private/",
        r"AmbiguousRuleException": "two steps would write one file: a stage or a site "
        "is named like another one; rename it",
        r"LockException|Directory cannot be locked": "another run is under way in this "
        "folder; wait for it, or, if it was killed: capeneuro run STUDY --unlock",
        r"(?:MissingOutputExc|Missing files after)(?s:.*?):\s*(\S+) \(": ""
        "{0} was written and is not seen: the network disk is slow; set latency-wait: "
        "120 in the profile",
        r"ProtectedOutputException": "a file to be written is protected; make it "
        "writable: chmod -R u+w results private",
        r"IncompleteFilesException": "files of a run that was killed are half there; "
        "run the same command again",
        r"No space left on device(.*)": "the disk is full; "
        f"{REMEDIES[errno.ENOSPC]}, then run the same command again",
        r"Disk quota exceeded(.*)": f"{REMEDIES[errno.EDQUOT]}, then run the same "
        "command again",
        r"Too many open files": "too many open files; " + REMEDIES[errno.EMFILE],
        r"Read-only file system: '(.+?)'": "{0}: " + REMEDIES[errno.EROFS],
        r"Permission denied: '(.+?)'": "{0}: may not be written or read; "
        + REMEDIES[errno.EACCES],
        r"(?:Not a directory|File exists): '(.+?)'": "{0}: " + REMEDIES[errno.ENOTDIR],
        r"File too large": "a file may not become so large; " + REMEDIES[errno.EFBIG],
        r"Cannot allocate memory|MemoryError": "memory ran out; "
        + REMEDIES[errno.ENOMEM],
        r"No usable temporary directory": "no folder for temporary files; set TMPDIR "
        "to one that you may write",
    }
)
# The same of SLURM's commands, which Snakemake hands on.
SLURM: Mapping[str, str] = MappingProxyType(
    {
        r"Invalid account or account/partition combination|given account (\S+) appears"
        r" to be invalid": "SLURM refuses the account {0}; set slurm_account in the "
        "profile to one of yours: sacctmgr show associations user=$USER",
        r"[Ii]nvalid partition (?:name )?(?:specified)?:? ?(\S*)": "SLURM has no "
        "partition {0}; set slurm_partition in the profile to one of: sinfo -o %P",
        r"[Ii]nvalid qos": "SLURM refuses the qos; take it out of the profile",
        r"Requested time limit is invalid|PartitionTimeLimit": "a job asks for longer "
        "than its partition allows; lower runtime in the profile",
        r"Requested node configuration is not available|Memory specification can not "
        r"be satisfied|CPU count per node can not be satisfied": "no node of the "
        "partition has what a job asks for; lower mem_mb or max-threads in the profile",
        r"QOSMax\w+|AssocMax\w+|AssocGrp\w+|MaxSubmitJobs\w*": "SLURM's limit of your "
        "account is reached ({match}); lower jobs in the profile, or wait",
        r"Unable to contact slurm controller|Socket timed out|Connection refused": ""
        "SLURM does not answer; the same command again goes on when it does",
        r"sbatch: (?:command )?not found": "sbatch: not found; type the command on a "
        "login node of the cluster",
        r"No such file or directory: '(s[a-z]{4,7})'": "{0}: not found, a command of "
        "SLURM (package slurm-client); type the command on a login node of the cluster",
        r"Neither 'sacct' nor 'squeue'": "squeue: not found; type the command on a "
        "login node of the cluster",
        r"SLURM-job '(\d+)' failed, SLURM status is: '(OUT_OF_MEMORY)'": "SLURM ended "
        "job {0}, which used more memory than it asked for; raise mem_mb in the "
        "profile",
        r"SLURM-job '(\d+)' failed, SLURM status is: '(TIMEOUT|DEADLINE)'": "SLURM "
        "ended job {0}, which took longer than it asked for; raise runtime in the "
        "profile",
        r"SLURM-job '(\d+)' failed, SLURM status is: '(CANCELLED\w*)'": "job {0} was "
        "cancelled (scancel, or the cluster's owner); the same command goes on",
        r"SLURM-job '(\d+)' failed.*?'(NODE_FAIL|BOOT_FAIL)'": "the node of job {0} "
        "failed; the same command goes on",
    }
)
# Why a job waits, by squeue, and the remedy.
WAITS: Mapping[str, str] = MappingProxyType(
    {
        "PartitionConfig|PartitionNodeLimit|BadConstraints|ReqNodeNotAvail": "no node "
        "of the partition has what it asks for; lower mem_mb or max-threads",
        "PartitionTimeLimit|TimeLimit": "it asks for longer than the partition allows; "
        "lower runtime",
        "PartitionDown|PartitionInactive": "the partition is closed; take another "
        "slurm_partition",
        "Nodes required for job are DOWN|NodeDown": "the nodes are down; take another "
        "slurm_partition",
        "AccountNotAllowed|InvalidAccount|AssocGrp|AssocMax": "the account may not run "
        "it; take another slurm_account, or ask who keeps it",
        "InvalidQOS|QOSMax|QOSGrp|QOSNotAllowed": "a limit of the qos; lower jobs, "
        "mem_mb or max-threads",
        "JobHeldUser": "it is held: scontrol release",
        "JobHeldAdmin": "the cluster's owner holds it; ask them",
        "launch failed": "the node could not start it; ask who keeps the cluster",
        "Resources|Priority|None": "it waits for its turn; if no node is as large as "
        "it asks for, for ever: lower mem_mb or max-threads",
    }
)


class MessageFile(logging.Handler):
    """Write Snakemake's messages to a file, whether or not they are printed."""

    def __init__(self, path: Path = MESSAGES) -> None:
        super().__init__()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "w", buffering=1)  # noqa: SIM115 (as long as the run)

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message; a full disk is no reason to stop."""
        with suppress(Exception):
            why = getattr(record, "rule_msg", None)  # of a job that failed
            self._file.write(f"{record.getMessage()}{f': {why}' if why else ''}\n")


def usable_caches(folder: Path = Path(".snakemake")) -> dict[str, str]:
    """Variables that give Snakemake and matplotlib a cache where there is none.

    Parameters
    ----------
    folder
        Folder of the study in which caches may lie.

    Returns
    -------
    dict
        Values by the name of the variable; empty where the user's own folders do.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if os.path.isabs(cache) and _may_write(cache):  # "~" stays where there is no home
        return {}
    return {
        name: str((folder / inside).absolute())
        for name, inside in CACHES.items()
        if name == "XDG_CACHE_HOME" or not os.environ.get(name)
    }


def _may_write(folder: str) -> bool:
    """Whether a folder can be written to, or made."""
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def in_words(text: str, study: str = "STUDY") -> str:
    """Cause and remedy of a failure from a program's messages; empty if not known.

    Parameters
    ----------
    text
        The program's messages.
    study
        Study file, for commands in the line.
    """
    for pattern, line in (SLURM | SNAKEMAKE).items():
        if match := re.search(pattern, text):
            filled = [" ".join((group or "").split()) for group in match.groups()]
            text = line.format(*(part[:200] for part in filled), match=match[0])
            return re.sub(r" +(?=[ ;])", "", text).replace("STUDY", study)
    return ""


def is_cut(log: str) -> bool:
    """Whether a step's log ends before the step did."""
    return not ENDED.search(log)
