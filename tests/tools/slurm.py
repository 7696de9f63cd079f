"""A stand-in for SLURM's commands, as small scripts: nothing runs, all goes wrong."""

from pathlib import Path

COMMANDS = ("sbatch", "squeue", "sinfo", "scontrol", "scancel")
COMMANDS += ("sacct", "sacctmgr", "sshare")
SCRIPT = r"""#!/bin/sh
case $(basename "$0"):$FAKE_SLURM in
    sbatch:partition)
        echo "sbatch: error: invalid partition specified: nonesuch" >&2
        exit 1 ;;
    sbatch:account)
        echo "sbatch: error: Batch job submission failed: Invalid account or" \
            "account/partition combination specified" >&2
        exit 1 ;;
    sbatch:*) echo 7 ;;
    squeue:down)
        echo "slurm_load_jobs error: Unable to contact slurm controller" >&2
        exit 1 ;;
    squeue:vanished) ;;
    squeue:runs) echo "7|RUNNING|None" ;;
    squeue:memory) echo "7|OUT_OF_MEMORY|None" ;;
    squeue:*) echo "7|PENDING|$FAKE_SLURM" ;;
    sinfo:*) echo "PARTITION"; echo "all*" ;;
    scontrol:*) echo "MinJobAge = 300 sec" ;;
    sacct:*) echo "Slurm accounting storage is disabled" >&2; exit 1 ;;
    *) exit 1 ;;
esac
"""


def install(folder: Path) -> Path:
    """Write the scripts; what `FAKE_SLURM` in the environment names goes wrong."""
    folder.mkdir(parents=True)
    for name in COMMANDS:
        path = folder / name
        path.write_text(SCRIPT)
        path.chmod(0o755)
    return folder
