#!/bin/sh
# What only a GPU can settle, within ten minutes: sh scripts/gpu-tier.sh OUT [PYTHON]
#
# OUT is a folder for what was found; PYTHON has a CUDA build of torch (python3 by default). envlock
# runs from .venv, or from ENVLOCK_PYTHON where that is set. Ends with 5 where there is no GPU.
set -eu

die() { printf 'gpu-tier: %s\n' "$2" >&2; exit "$1"; }

[ $# -ge 1 ] || die 2 "usage: sh scripts/gpu-tier.sh OUT [PYTHON]"
out=$1
target=${2:-python3}
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
own=${ENVLOCK_PYTHON:-$root/.venv/bin/python}

[ -x "$own" ] || die 2 "$own is not there: run scripts/make-venv.sh, or set ENVLOCK_PYTHON"
command -v "$target" >/dev/null 2>&1 || die 2 "$target is not there"
mkdir -p "$out"
out=$(CDPATH= cd -- "$out" && pwd)
cd "$root"
exec "$own" -m scripts.gpu_tier "$out" "$(command -v "$target")"
