#!/bin/sh
# A study on a SLURM cluster of one machine: this one. It needs Debian's packages
#     apt-get install --no-install-recommends munge slurmctld slurmd slurm-client
# and nothing of their services: all runs as you, in a folder of its own, and ends here.
#     examples/slurm/run.sh [SNAKEMAKE ARGUMENTS...]
set -eu
profile=$(cd "$(dirname "$0")/../.." && pwd)/workflow/profiles/slurm
folder=$(mktemp -d "${TMPDIR:-/tmp}/slurm-XXXXXX")
chmod 755 "$folder"
host=$(hostname -s) user=$(id -un) PATH=$PATH:/usr/sbin:/sbin
port=${SLURM_PORT:-16817}

stop() {
    for name in slurmd slurmctld munged; do
        [ -f "$folder/$name.pid" ] && kill "$(cat "$folder/$name.pid")" 2>/dev/null
    done
    [ "${KEEP:-}" ] && echo "logs are in $folder" || rm -rf "$folder"
}
trap stop EXIT
trap 'exit 1' INT TERM

mkdir -p -m 755 "$folder/munge" "$folder/state" "$folder/spool"
(umask 077 && head -c 128 /dev/urandom > "$folder/munge.key")
munged --force --key-file="$folder/munge.key" --socket="$folder/munge/socket" \
    --pid-file="$folder/munged.pid" --log-file="$folder/munge/log" \
    --seed-file="$folder/munge/seed"

cat > "$folder/slurm.conf" <<END
ClusterName=here
SlurmctldHost=$host(localhost)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MinJobAge=300
NodeName=$host NodeAddr=localhost CPUs=$(nproc --all) RealMemory=${MEMORY:-8000} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
export SLURM_CONF="$folder/slurm.conf"
# Snakemake takes variables of SLURM out of a job's environment.
mkdir "$folder/bin"
printf '#!/bin/sh\nSLURM_CONF=%s exec %s "$@"\n' "$SLURM_CONF" "$(command -v srun)" \
    > "$folder/bin/srun"
chmod +x "$folder/bin/srun"
export PATH="$folder/bin:$PATH"
slurmctld
slurmd
for _ in $(seq 60); do
    sinfo --noheader --states=idle 2>/dev/null | grep -q . && break
    sleep 1
done
sinfo
snakemake --workflow-profile "$profile" "$@"
