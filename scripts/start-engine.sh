#!/bin/sh
# Start a Docker Engine in the background where none answers, and wait until it does. May be run again:
# an engine that answers is left alone. Pid files and sockets of an engine that was killed are cleared.
#
# For a second engine beside another one, set ENGINE_SOCKET, ENGINE_DATA, ENGINE_EXEC, ENGINE_PIDFILE;
# ENGINE_FLAGS is handed to dockerd as it is; ENGINE_WAIT_S is how long to wait for an answer.
set -eu

socket=${ENGINE_SOCKET:-/var/run/docker.sock}
pidfile=${ENGINE_PIDFILE:-/var/run/docker.pid}
exec_root=${ENGINE_EXEC:-/var/run/docker}
data_root=${ENGINE_DATA:-/var/lib/docker}
wait_s=${ENGINE_WAIT_S:-60}
log=${ENGINE_LOG:-/var/log/envlock-dockerd.log}

say() { printf '%s\n' "start-engine: $*" >&2; }
die() { say "$*"; exit 1; }

answers() { timeout 5 docker -H "unix://$socket" version --format '{{.Server.Version}}' 2>/dev/null; }

# Is the process in a pid file alive, and the program it should be? Pids are given out again, and a
# killed process that nobody has collected yet still has its name, but no program file.
alive() {
    [ -s "$1" ] || return 1
    pid=$(cat "$1")
    [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$2" ] && readlink "/proc/$pid/exe" >/dev/null 2>&1
}

if [ -n "${DOCKER_HOST:-}" ] && [ -z "${ENGINE_SOCKET:-}" ]; then
    version=$(timeout 10 docker version --format '{{.Server.Version}}' 2>/dev/null) ||
        die "DOCKER_HOST is set ($DOCKER_HOST), but no engine answers there; start it, or unset the variable"
    say "Docker Engine $version answers at $DOCKER_HOST"
    exit 0
fi
if version=$(answers); then
    say "Docker Engine $version already answers at $socket"
    exit 0
fi
if [ -S "$socket" ] && [ ! -w "$socket" ]; then
    die "no permission to use $socket: run as root, or as a member of the group docker"
fi
command -v dockerd >/dev/null 2>&1 || die "dockerd is not installed: run scripts/install-engine.sh"
[ "$(id -u)" = 0 ] || die "run as root to start an engine"

if alive "$pidfile" dockerd; then
    say "dockerd (process $(cat "$pidfile")) runs already; waiting for it"
else
    # What a killed engine leaves behind. dockerd refuses to start when the pid in its pid file is
    # taken again by whatever process; a containerd without its dockerd keeps its own socket.
    rm -f "$pidfile"
    [ ! -S "$socket" ] || rm -f "$socket"
    if alive "$exec_root/containerd/containerd.pid" containerd; then
        pid=$(cat "$exec_root/containerd/containerd.pid")
        say "ending containerd (process $pid), left by a killed engine"
        kill "$pid" 2>/dev/null || true
        for _ in 1 2 3 4 5 6 7 8 9 10; do
            [ -d "/proc/$pid" ] || break
            sleep 0.5
        done
        [ ! -d "/proc/$pid" ] || kill -9 "$pid" 2>/dev/null || true
    fi
    rm -f "$exec_root/containerd/containerd.pid" "$exec_root"/containerd/containerd*.sock*
    # shellcheck disable=SC2086 # flags are words
    setsid nohup dockerd --host "unix://$socket" --pidfile "$pidfile" --exec-root "$exec_root" \
        --data-root "$data_root" ${ENGINE_FLAGS:-} >"$log" 2>&1 </dev/null &
    started=$!
fi

waited=0
until version=$(answers); do
    if [ -n "${started:-}" ] && ! kill -0 "$started" 2>/dev/null; then
        tail -n 5 "$log" >&2 || true
        die "dockerd ended at once; its log is $log"
    fi
    [ "$waited" -lt "$wait_s" ] || die "no answer from dockerd within $wait_s s; its log is $log"
    sleep 1
    waited=$((waited + 1))
done
say "Docker Engine $version answers at $socket"
