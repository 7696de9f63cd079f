#!/bin/sh
# Stop what run.sh started and remove its folder; `clean.sh processes` keeps the folder.
set -eu
work=$(cd "$(dirname "$0")" && pwd)/work
if [ -f "$work/pids" ]; then
    # shellcheck disable=SC2046
    kill $(cat "$work/pids") 2>/dev/null || true
    while read -r pid; do
        while kill -0 "$pid" 2>/dev/null; do sleep 0.2; done
    done <"$work/pids"
    rm "$work/pids"
fi
[ "${1:-}" = processes ] || rm -rf "$work"
