#!/bin/sh
# Install a Docker Engine and what else envlock needs from the system, from the distribution's own
# packages, and start the engine. For a bare Debian or Ubuntu machine, as root. May be run again.
set -eu

say() { printf '%s\n' "install-engine: $*" >&2; }
die() { say "$*"; exit 1; }

missing=
need() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }
need dockerd docker.io
need containerd containerd
need runc runc
need mmdebstrap mmdebstrap
need iptables iptables
need git git
python3 -c 'import venv, ensurepip' >/dev/null 2>&1 || missing="$missing python3-venv"

if [ -n "$missing" ]; then
    [ "$(id -u)" = 0 ] || die "run as root to install:$missing"
    command -v apt-get >/dev/null 2>&1 || die "no apt-get here; install by other means:$missing"
    say "installing:$missing"
    export DEBIAN_FRONTEND=noninteractive
    # Packages may be there already as lists; an old list is refreshed only when it does not do.
    # shellcheck disable=SC2086 # one word per package
    apt-get install -y -q --no-install-recommends $missing >/dev/null 2>&1 || {
        apt-get update -q >/dev/null || die "apt-get update failed: is the network there?"
        apt-get install -y -q --no-install-recommends $missing >/dev/null ||
            die "apt-get could not install:$missing"
    }
fi
exec "$(dirname "$0")/start-engine.sh"
