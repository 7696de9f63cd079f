#!/bin/sh
# A study by files on one machine: an aggregator and five hospitals, each in a folder of
# its own with its own file and ledger. Nobody listens and nobody calls: `carry` is the
# person who takes a file from one folder to another, once somebody has read it.
#     examples/by-files/run.sh
# Needs: pip install -e ".[workflow]" in .venv. Clean up: clean.sh
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$here/work
bin=${BIN:-$root/.venv/bin}
sites="north south east west coast"
"$here/clean.sh"
mkdir "$work"

carry() { cp "$@"; }
at() { (cd "$work/$1" && shift && "$bin/capeneuro" "$@"); }

echo "== the data: simulated, each hospital's table in its own folder"
mkdir "$work/simulation" "$work/lead" "$work/mail"
cp "$here"/*.yaml "$work/simulation"
(cd "$work/simulation" && PYTHONPATH=$root "$bin/python" -m sim study.yaml)
for party in lead $sites; do
    mkdir -p "$work/$party/data"
    cp "$here/study.yaml" "$work/$party"
    cp -r "$work/simulation/public" "$work/$party"
done
for site in $sites; do
    cp "$here/$site.yaml" "$work/$site"
    mv "$work/simulation/data/$site.tsv" "$work/$site/data"
done

echo "== first visit: each hospital prepares, looks at the study, and sends its entry"
for site in $sites; do
    at "$site" validate study.yaml
    at "$site" prepare study.yaml --site "$site"
    at "$site" join study.yaml --site "$site" \
        --institution "Hospital $site" --contact "dpo@$site.example"
    carry "$work/$site/$site.entry.json" "$work/lead"
done

echo "== the lead: the manifest of all entries, its fingerprint published, the requests"
at lead federation manifest study.yaml north.entry.json south.entry.json \
    east.entry.json west.entry.json coast.entry.json | tee "$work/manifest.log"
# In a study: as it was published, not as the manifest came.
fingerprint=$(sed -n 's/^  \([0-9a-f]\{64\}\)$/\1/p' "$work/manifest.log")
at lead validate study.yaml
at lead aggregate study.yaml --folder "$work/mail" || [ $? = 4 ]

echo "== second visit: each hospital approves and answers; a person reads and carries"
for site in $sites; do
    carry "$work/mail/to-$site/carried-1.$site.request.zip" "$work/$site"
    at "$site" answer "carried-1.$site.request.zip" --fingerprint "$fingerprint" --yes
    cat "$work/$site/carried-1.$site.DISCLOSURE.txt"
    mkdir "$work/mail/from-$site"
    carry "$work/$site/carried-1.$site.answer.zip" "$work/mail/from-$site"
done

echo "== the lead: every answer of the pilot is there; it asks for the effects"
at lead privacy verify "$work/mail/from-north/carried-1.north.answer.zip" \
    --manifest manifest.json
at lead aggregate study.yaml --folder "$work/mail" || [ $? = 4 ]

echo "== third visit: each hospital answers"
for site in $sites; do
    carry "$work/mail/to-$site/carried-2.$site.request.zip" "$work/$site"
    at "$site" answer "carried-2.$site.request.zip" --yes
    carry "$work/$site/carried-2.$site.answer.zip" "$work/mail/from-$site"
done

echo "== the lead: every answer is there"
at lead aggregate study.yaml --folder "$work/mail"
echo "The report: $work/lead/results/carried/report.html"
echo "What left:  $work/north/carried-1.north.DISCLOSURE.html"
