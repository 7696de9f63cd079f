#!/bin/sh
# One study of six sites, then ten questions to its results: docs/ten-questions.md.
#     examples/ask/run.sh
# Noise is drawn from a seed, which simulated data allow, so that the page is repeatable.
# Needs: pip install -e ".[workflow]" in .venv. Everything is written to examples/ask/work.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=${BIN:-$root/.venv/bin}
rm -rf "$here/work"
mkdir "$here/work"
cd "$here/work"
cp "$here/study.yaml" .
for site in s1 s2 s3 s4 s5 s6; do
    cat > "$site.yaml" <<SITE
name: $site
images: data/$site.tsv
data: simulated
epsilon: 4.0
delta: 1.0e-5
unit: subject
ledger: ledger/$site
seed: 1
SITE
done
PYTHONPATH=$root "$bin/python" -m sim study.yaml
"$bin/capeneuro" run study.yaml

while read -r question; do
    echo "== $question"
    "$bin/capeneuro" ask results/doses "$question"
done < "$here/questions.txt"
