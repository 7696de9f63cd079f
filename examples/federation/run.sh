#!/bin/sh
# A federation on one machine, over mutual TLS: an aggregator and three sites, each in a
# folder of its own with its own kit, files and ledger, from provisioning to the report.
#     examples/federation/run.sh [port]
# Needs: pip install -e ".[workflow,federated]" in .venv. Clean up: clean.sh
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$here/work
bin=${BIN:-$root/.venv/bin}
"$here/clean.sh"
mkdir "$work"
trap '"$here/clean.sh" processes' EXIT INT TERM HUP

echo "== the data: three sites, simulated where all site files are"
mkdir "$work/simulation"
cp "$here"/*.yaml "$work/simulation"
(cd "$work/simulation" && PYTHONPATH=$root "$bin/python" -m sim study.yaml)

echo "== the kits: a key for each party, hardened"
"$bin/capeneuro" federation init "$work/simulation/study.yaml" "$work/kits" \
    --server localhost --port "${1:-8002}" --here

echo "== the parties: each in a folder of its own"
for party in aggregator north south west; do
    mkdir -p "$work/$party/config" "$work/$party/images"
    cp "$here/study.yaml" "$work/$party/config/config.yaml"
    cp -r "$work/simulation/public" "$work/$party"
    ln -s "$root/workflow" "$work/$party/workflow"
done
for site in north south west; do
    cp "$here/$site.yaml" "$work/$site"
    mv "$work/simulation/images/$site" "$work/$site/images"
done

echo "== joining: each site's entry, the manifest, everybody's approval"
study=config/config.yaml
hub=$work/aggregator
for site in north south west; do
    (cd "$work/$site" && "$bin/capeneuro" join $study --site "$site" \
        --institution "Hospital $site" --contact "dpo@$site.example")
done
(cd "$hub" && "$bin/capeneuro" federation manifest $study "$work"/*/*.entry.json) |
    tee "$work/manifest.log"
# On real hosts: as it was published, not as the manifest came.
fingerprint=$(sed -n 's/^  \([0-9a-f]\{64\}\)$/\1/p' "$work/manifest.log")
for site in north south west; do
    (cd "$work/$site" && "$bin/capeneuro" join $study --site "$site" \
        --manifest "$hub/manifest.json" --fingerprint "$fingerprint")
done
(cd "$hub" && "$bin/capeneuro" federation approvals $study "$work"/*/*.approval.json)

echo "== the sites: prepare, then wait for the aggregator"
for site in north south west; do
    (
        cd "$work/$site"
        "$bin/snakemake" --quiet --cores 1 prepared
        exec "$bin/capeneuro" site $study --site "$site" --kit "$work/kits/$site/kit"
    ) >"$work/$site.log" 2>&1 &
    echo $! >>"$work/pids"
done

echo "== the aggregator: the steps over all sites, maps, scores, report"
cd "$work/aggregator"
export CAPENEURO_SERVER_KIT="$work/kits/server/kit"
export CAPENEURO_LEAD_KIT="$work/kits/lead/kit"
"$bin/snakemake" --quiet --cores 2
echo "The report: $work/aggregator/results/across/report.html"
