#!/bin/sh
# Make the virtual environment that envlock is developed and tested in: PYTHON VENV.
set -eu

python=$1
venv=$2

die() { printf 'make-venv: %s\n' "$*" >&2; exit 1; }

command -v "$python" >/dev/null 2>&1 || die "$python is not there; set PYTHON=/path/to/python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    die "$("$python" --version) is too old: Python 3.10 or newer is needed (set PYTHON=…)"

if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    # Debian and Ubuntu keep ensurepip in a package of its own.
    [ "$(id -u)" = 0 ] || die "$python has no ensurepip: apt-get install python3-venv"
    apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q python3-venv
fi

rm -rf "$venv"
"$python" -m venv "$venv"
# uv is much faster; pip, which reads its own configuration, is the way where uv finds no index.
"$venv/bin/pip" install --quiet --upgrade 'pip>=25.1' uv
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --editable . --group dev ||
    "$venv/bin/pip" install --quiet --editable . --group dev
touch "$venv/ready"
