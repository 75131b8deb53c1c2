#!/bin/sh
# Install a Docker Engine, Buildah and what else envlock needs from the system, from the distribution's own
# packages, and start the engine. For a bare Debian or Ubuntu machine, as root. May be run again.
set -eu

say() { printf '%s\n' "install-engine: $*" >&2; }
die() { say "$*"; exit 1; }

missing=
need() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }

# Whether any docker client on PATH can build with BuildKit: through the buildx plugin, or by itself
# (before release 23).
can_build() {
    old_ifs=$IFS
    IFS=:
    for folder in $PATH; do
        [ -x "$folder/docker" ] || continue
        if "$folder/docker" buildx version >/dev/null 2>&1 ||
            DOCKER_BUILDKIT=1 "$folder/docker" build --help 2>/dev/null | grep -q -e --secret; then
            IFS=$old_ifs
            return 0
        fi
    done
    IFS=$old_ifs
    return 1
}

install() {
    [ "$(id -u)" = 0 ] || die "run as root to install: $*"
    command -v apt-get >/dev/null 2>&1 || die "no apt-get here; install by other means: $*"
    say "installing: $*"
    export DEBIAN_FRONTEND=noninteractive
    # The lists may be there already, and be good enough; they are refreshed only when they are not.
    apt-get install -y -q --no-install-recommends "$@" >/dev/null 2>&1 || {
        apt-get update -q >/dev/null || die "apt-get update failed: is the network there?"
        apt-get install -y -q --no-install-recommends "$@" >/dev/null ||
            die "apt-get could not install: $*"
    }
}

need dockerd docker.io
need containerd containerd
need runc runc
need mmdebstrap mmdebstrap
need buildah buildah
need skopeo skopeo
need iptables iptables
need git git
python3 -c 'import venv, ensurepip' >/dev/null 2>&1 || missing="$missing python3-venv"
# shellcheck disable=SC2086 # one word per package
[ -z "$missing" ] || install $missing

# Newer releases have the client and its BuildKit plugin in packages of their own.
command -v docker >/dev/null 2>&1 || install docker-cli
can_build || install docker-buildx

exec "$(dirname "$0")/start-engine.sh"
