#!/bin/sh
# A study around priors of other simulated people, one after the other.
#     config/demo_prior/run.sh [good] [poor] [moved] [missing] [split]
# Needs the environment that ./demo.sh makes.
set -eu
cd "$(dirname "$0")/../.."
bin=${BIN:-.venv/bin}
here=config/demo_prior
work=data/demo_prior
[ $# -gt 0 ] || set -- good poor moved missing split
[ -e $work/mask.nii.gz ] || "$bin/python" -m sim $here/study.yaml --threads 2
for kind; do
    people=50 altered=null
    case $kind in
    good) ;;
    poor) people=2 ;;
    *) altered="{network: 2, how: $kind}" ;;
    esac
    echo "== $kind: other people, the prior of them, the study around it"
    sed -e "s/n_subjects: .*/n_subjects: $people/" -e "s/altered: .*/altered: $altered/" \
        $here/public.yaml >$work/$kind-public.yaml
    rm -rf $work/public
    "$bin/python" -m sim $work/$kind-public.yaml --threads 2
    "$bin/capeneuro" prior $work/$kind-public.yaml --out $work/$kind.npz \
        --source "other simulated people, $kind" --licence CC0
    # The people are made already.
    sed -e "s/^study: .*/study: demo_prior_$kind/" -e "s/good\.npz/$kind.npz/" \
        -e '/^data:/,$d' $here/study.yaml >$work/$kind.yaml
    "$bin/snakemake" --quiet --cores 2 --configfile $work/$kind.yaml
done
