#!/bin/sh
# Build the sdist and of it the wheel, install the wheel in an empty environment, and run
# a demo and the examples on it in a folder that is no checkout, with the times that all of it takes.
#     packaging/try_wheel.sh [EXTRAS]        # such as workflow,eeg; none by default
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/wheel-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
python=${PYTHON:-python3}
start=$(date +%s)

said() {
    echo "$1: $(($(date +%s) - start)) s"
    start=$(date +%s)
}

"$python" -m venv "$work/build"
"$work/build/bin/pip" install --quiet build
"$work/build/bin/python" -m build --outdir "$work/dist" "$root" >"$work/log" 2>&1 ||
    { cat "$work/log"; exit 1; }
ls -l "$work/dist"
said "sdist, and the wheel of it"

"$python" -m venv "$work/env"
"$work/env/bin/pip" install --quiet "$(ls "$work"/dist/*.whl)${1:+[$1]}"
said "installed"

mkdir "$work/here"
cp "$root"/examples/*.py "$work/here"
cd "$work/here"
# Nothing of the checkout, nor of the user, is to be found.
unset PYTHONPATH
export HOME="$work/home" MPLBACKEND=agg
"$work/env/bin/python" -I -c 'import capeneuro, sys
assert capeneuro.__file__.startswith(sys.prefix), capeneuro.__file__
print("capeneuro", capeneuro.__version__)'
"$work/env/bin/capeneuro" init my-study --sites 2
said "import, and a new study"
"$work/env/bin/capeneuro" init demo --data simulated
(cd demo && "$work/env/bin/capeneuro" run config/config.yaml) >demo.log 2>&1 || { cat demo.log; exit 1; }
said "a demo: its people made, and its report"
for name in arrays table fusion exact files; do
    "$work/env/bin/python" "$name.py" >"$name.log" 2>&1 || { cat "$name.log"; exit 1; }
    said "examples/$name.py"
done
ls results/examples/arrays.png results/example/report.html demo/results/demo/report.html
