#!/bin/sh
# Start or stop a SLURM cluster of one machine, this one. It needs Debian's packages
#     apt-get install --no-install-recommends munge slurmctld slurmd slurm-client
# and nothing of their services: all runs as you, in a folder.
#     examples/slurm/cluster.sh start FOLDER     then: . FOLDER/environment
#     examples/slurm/cluster.sh stop FOLDER
set -eu
folder=$2 host=$(hostname -s) user=$(id -un) PATH=$PATH:/usr/sbin:/sbin
port=${SLURM_PORT:-16817}

if [ "$1" = stop ]; then
    SLURM_CONF="$folder/slurm.conf" timeout 10 scancel --full --user="$user" || true
    sleep 1
    for name in slurmd slurmctld munged; do
        pid=$(cat "$folder/$name.pid" 2>/dev/null) || continue
        kill "$pid" 2>/dev/null || continue
        while kill -0 "$pid" 2>/dev/null; do sleep 0.2; done # it still writes
    done
    exit
fi

mkdir -p -m 755 "$folder" "$folder/bin" "$folder/munge" "$folder/state" "$folder/spool"
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
SlurmdTimeout=${SLURMD_TIMEOUT:-300}
KillWait=5
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
# Snakemake takes variables of SLURM out of a job's environment.
printf '#!/bin/sh\nSLURM_CONF=%s exec %s "$@"\n' "$folder/slurm.conf" "$(command -v srun)" \
    > "$folder/bin/srun"
chmod +x "$folder/bin/srun"
cat > "$folder/environment" <<END
export SLURM_CONF="$folder/slurm.conf"
export PATH="$folder/bin:\$PATH:/usr/sbin:/sbin"
END
. "$folder/environment"
slurmctld
slurmd
for _ in $(seq 60); do
    sinfo --noheader --format=%T 2>/dev/null | grep -q idle && break
    sleep 1
done
sinfo
