#!/bin/bash
# Runs the program that the image is named after, with the arguments that its official image takes.
set -euo pipefail
cd "${PLACE:-/}"
exec "$PROGRAM" "$@"
