#!/bin/sh
# A study on a SLURM cluster of one machine, this one: started, used and ended.
#     examples/slurm/run.sh [SNAKEMAKE ARGUMENTS...]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d "${TMPDIR:-/tmp}/slurm-XXXXXX")
chmod 755 "$folder"

stop() {
    "$here/cluster.sh" stop "$folder"
    [ "${KEEP:-}" ] && echo "logs are in $folder" || rm -rf "$folder"
}
trap stop EXIT
trap 'exit 1' INT TERM

"$here/cluster.sh" start "$folder"
. "$folder/environment"
snakemake --workflow-profile "$here/../../workflow/profiles/slurm" "$@"
