#!/bin/sh
# Remove what run.sh made.
set -eu
rm -rf "$(cd "$(dirname "$0")" && pwd)/work"
