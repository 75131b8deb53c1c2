"""How envlock runs a foreign image: as pure data, so that it can be read and tested in one piece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

USER = "65534:65534"
"""nobody, by number: the image's own list of users does not matter."""
FOLDER = "/tmp"  # noqa: S108 - inside the container, where it is a file system of its own
TEMPORARY_LABEL = "org.envlock.temporary"


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerSpec:
    """A container as envlock runs foreign images. What is not here cannot be asked for."""

    name: str
    image_id: str
    argv: Sequence[str]
    """Replaces the image's ENTRYPOINT and CMD."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the image's."""
    memory_bytes: int
    shm_bytes: int
    pids: int = 4096
    gpus: bool = False
    runtime: str | None = None


def container_config(spec: ContainerSpec) -> dict[str, Any]:
    """The body of ``POST /containers/create``: no network, no mounts, nothing to gain, and limits.

    The image's ENV stays, as it is what users get; everything else that an image may set is replaced.
    """
    host: dict[str, Any] = {
        "AutoRemove": True,  # so that nothing is left when envlock itself is killed
        "CapDrop": ["ALL"],
        "IpcMode": "private",
        "LogConfig": {"Type": "none", "Config": {}},  # or a program can fill the engine's disk
        "Memory": spec.memory_bytes,
        "MemorySwap": spec.memory_bytes,
        "NetworkMode": "none",
        "PidsLimit": spec.pids,
        "Privileged": False,
        "ReadonlyRootfs": True,
        "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
        "SecurityOpt": ["no-new-privileges"],
        "ShmSize": spec.shm_bytes,
        "Tmpfs": {FOLDER: "mode=1777"},
    }
    if spec.runtime:
        host["Runtime"] = spec.runtime
    if spec.gpus:
        host["DeviceRequests"] = [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]
    return {
        "Image": spec.image_id,
        "Entrypoint": [spec.argv[0]],
        "Cmd": list(spec.argv[1:]),
        "Env": [f"{name}={value}" for name, value in sorted(spec.environment.items())],
        "Healthcheck": {"Test": ["NONE"]},
        "Labels": {TEMPORARY_LABEL: "true"},
        "NetworkDisabled": True,
        "OpenStdin": False,
        "Tty": False,
        "User": USER,
        "WorkingDir": FOLDER,
        "HostConfig": host,
    }
