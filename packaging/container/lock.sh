#!/bin/sh
# Write the versions that the image installs, with their digests: requirements.lock.
#     packaging/container/lock.sh
# Needs uv. Again after every change of the dependencies in pyproject.toml.
set -eu
cd "$(dirname "$0")/../.."
uv pip compile pyproject.toml --extra exact --extra federated --extra eeg \
    --universal --python-version 3.11 --generate-hashes --no-annotate --quiet \
    --custom-compile-command packaging/container/lock.sh \
    --output-file packaging/container/requirements.lock
