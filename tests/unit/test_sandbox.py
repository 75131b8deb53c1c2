"""The run options of a foreign image, as they are sent to the engine."""

from __future__ import annotations

from envlock.targets.container import candidates, thread_pin
from envlock.targets.engine import ImageInfo
from envlock.targets.sandbox import ContainerSpec, container_config


def spec(**changes: object) -> ContainerSpec:
    fields: dict[str, object] = {
        "name": "n",
        "image_id": "sha256:1",
        "argv": ("python3", "-I", "-c", "pass"),
        "environment": {"OMP_NUM_THREADS": "1"},
        "memory_bytes": 1 << 30,
        "shm_bytes": 1 << 26,
    }
    return ContainerSpec(**{**fields, **changes})  # type: ignore[arg-type]


def image(**changes: object) -> ImageInfo:
    fields: dict[str, object] = {
        "reference": "i:1",
        "image_id": "sha256:1",
        "repo_digests": (),
        "layers": (),
        "os": "linux",
        "architecture": "amd64",
        "size_bytes": 1,
        "user": "",
        "entrypoint": (),
        "cmd": (),
        "env": {},
        "labels": {},
        "onbuild": (),
        "volumes": (),
    }
    return ImageInfo(**{**fields, **changes})  # type: ignore[arg-type]


def test_everything_that_is_sent() -> None:
    assert container_config(spec()) == {
        "Image": "sha256:1",
        "Entrypoint": ["python3"],
        "Cmd": ["-I", "-c", "pass"],
        "Env": ["OMP_NUM_THREADS=1"],
        "Healthcheck": {"Test": ["NONE"]},
        "Labels": {"org.envlock.temporary": "true"},
        "NetworkDisabled": True,
        "OpenStdin": False,
        "Tty": False,
        "User": "65534:65534",
        "WorkingDir": "/tmp",
        "HostConfig": {
            "AutoRemove": True,
            "CapDrop": ["ALL"],
            "IpcMode": "private",
            "LogConfig": {"Type": "none", "Config": {}},
            "Memory": 1 << 30,
            "MemorySwap": 1 << 30,
            "NetworkMode": "none",
            "PidsLimit": 4096,
            "Privileged": False,
            "ReadonlyRootfs": True,
            "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
            "SecurityOpt": ["no-new-privileges"],
            "ShmSize": 1 << 26,
            "Tmpfs": {"/tmp": "mode=1777"},
        },
    }


def test_gpus_come_only_when_asked_for() -> None:
    host = container_config(spec(gpus=True))["HostConfig"]
    assert host["DeviceRequests"] == [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]
    assert host["Privileged"] is False


def test_the_interpreter_is_the_named_one_then_the_labelled_then_those_on_path() -> None:
    labelled = image(labels={"org.envlock.python": "/opt/python"})
    assert candidates(labelled, "/bin/py") == ("/bin/py",)
    assert candidates(labelled, None) == ("/opt/python",)
    assert candidates(image(), None) == ("python3", "python")


def test_threads_are_pinned_unless_the_image_says_otherwise() -> None:
    assert thread_pin(image()) == {"OMP_NUM_THREADS": "1"}
    assert thread_pin(image(env={"OMP_NUM_THREADS": "8"})) == {}
