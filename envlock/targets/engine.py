"""The container engine: images and containers, by the Docker Engine API.

The only module that imports ``docker``, and only once an engine is asked for: the package takes a
third of a second to load. What the engine says is translated in ``engine_errors``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from envlock.errors import InputError, TargetError
from envlock.targets.engine_errors import (
    EngineGoneError,
    NoImageError,
    explain_connection,
    explain_pull,
    explain_push,
    explain_start,
)
from envlock.targets.hijack import Output, converse, unwrap
from envlock.targets.image_info import ImageInfo, check_reference, image_info, split_tag
from envlock.targets.process import Completed
from envlock.targets.sandbox import FOLDER, ContainerSpec, container_config

__all__ = ["DEFAULT_ADDRESS", "OLDEST_API", "Engine", "ImageInfo", "check_reference"]

log = logging.getLogger(__name__)

OLDEST_API = (1, 40)
"""Docker 19.03: the first API with device requests, which is how GPUs are asked for."""
DEFAULT_ADDRESS = "unix:///var/run/docker.sock"

_LOOK_S = 10.0
_CALL_S = 60.0
_PULL_SILENCE_S = 120.0
_PULL_S = 3600.0
_DISCARD_S = 20.0
_ABORTED_S = 2.0
"""How long a container may still appear after the call that creates it was interrupted."""


class Engine:
    """A connection to one engine. Make one with ``Engine.connect``."""

    def __init__(self, client: Any, address: str) -> None:
        self._client = client  # a docker.APIClient: Any, as its stubs leave most of it untyped
        self.address = address

    @classmethod
    def connect(cls, *, timeout_s: float = _LOOK_S) -> Engine:
        """The engine that DOCKER_HOST names, else the local one.

        Raises EngineGoneError with one message per cause.
        """
        address = os.environ.get("DOCKER_HOST") or DEFAULT_ADDRESS
        _knock(address)
        import docker  # noqa: PLC0415
        from docker.utils import kwargs_from_env  # noqa: PLC0415

        try:
            client = docker.APIClient(version="auto", timeout=int(timeout_s), **kwargs_from_env())
        except docker.errors.InvalidVersion as error:
            raise _too_old(address, "below 1.24") from error
        except (docker.errors.DockerException, OSError, ValueError) as error:
            raise explain_connection(error, address) from error
        version = str(client.api_version)
        if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < OLDEST_API:
            raise _too_old(address, version)
        client.timeout = int(_CALL_S)
        return cls(client, address)

    def describe(self) -> str:
        version = self._call(self._client.version)
        return f"{version.get('Version', '?')} (API {self._client.api_version}) at {self.address}"

    def ping(self) -> None:
        """Raises EngineGoneError when the engine is gone."""
        self._call(self._client.ping)

    def resolve(self, reference: str, *, pull: bool = False) -> ImageInfo:
        """What a reference means now. Raises NoImageError when the engine does not have it.

        With ``pull`` an image that is not there is fetched; one that is there is taken as it is.
        """
        check_reference(reference)
        raw = self._inspect(reference)
        if raw is None and pull:
            self._pull(reference)
            raw = self._inspect(reference)
        if raw is None:
            raise NoImageError(
                f"the container engine has no image {reference}",
                hint=f"check the name, or fetch it: docker pull {reference}",
            )
        return image_info(reference, raw)

    def load(self, archive: Path) -> str:
        """Load an image archive (``docker save``) and return the id of its only image."""
        try:
            with archive.open("rb") as file:
                loaded = self.load_stream(file, str(archive))
        except FileNotFoundError as error:
            raise InputError(f"{archive} does not exist", hint="check the path") from error
        ids = {self.resolve(name).image_id for name in loaded}
        if len(ids) != 1:
            raise InputError(
                f"{archive} holds {len(ids)} images; exactly one is needed",
                hint="save one image per archive",
            )
        return ids.pop()

    def load_stream(self, data: Iterable[bytes], name: str) -> set[str]:
        """Load the images of an archive as it comes; returns their names and ids."""
        loaded: set[str] = set()
        with self._patient(), self._calling():
            for line in self._client.load_image(data, quiet=True):
                if "error" in line:
                    raise InputError(
                        f"the engine cannot load {name}: {line['error']}",
                        hint="the archive has to be one that 'docker save' could have written",
                    )
                words = str(line.get("stream", "")).strip()
                if words.startswith(("Loaded image ID: ", "Loaded image: ")):
                    loaded.add(words.split(": ", 1)[1])
        return loaded

    def save(self, image_id: str) -> Iterator[bytes]:
        """The image as an archive (``docker save``), as it comes."""
        with self._patient(), self._calling():
            yield from self._client.get_image(image_id)

    def push(self, reference: str) -> None:
        """Raises TargetError with what the registry said."""
        name, tag = split_tag(reference)
        with self._patient(), self._calling(explain=lambda text: explain_push(text, reference)):
            for line in self._client.push(name, tag=tag, stream=True, decode=True):
                if "error" in line:
                    raise explain_push(str(line["error"]), reference)

    def stacks(self, label: str) -> list[tuple[str, ...]]:
        """Diff ids, from below, of every image with that label."""
        found = self._call(lambda: self._client.images(all=True, filters={"label": label}))
        return [self.resolve(str(one["Id"])).layers for one in found]

    def layer_sizes(self, image_id: str) -> list[tuple[str, int]]:
        """What the image says made each layer, and the layer's bytes; the lowest first.

        Instructions that write nothing are among them, with 0 bytes.
        """
        rows = self._call(lambda: self._client.history(image_id))
        return [(str(row["CreatedBy"]), int(row["Size"])) for row in reversed(rows)]

    @contextlib.contextmanager
    def _patient(self) -> Iterator[None]:
        """For calls in which the engine is silent while it works."""
        usual, self._client.timeout = self._client.timeout, int(_PULL_S)
        try:
            yield
        finally:
            self._client.timeout = usual

    def tag(self, image_id: str, reference: str) -> None:
        check_reference(reference)
        self._call(self._client.tag, image_id, *split_tag(reference))

    def remove(self, reference: str) -> None:
        """Remove a tag, and the image with its last one. What is not there is no fault."""
        import docker  # noqa: PLC0415

        with contextlib.suppress(docker.errors.NotFound), self._calling():
            self._client.remove_image(reference, force=True)

    def default_runtime(self) -> str:
        return str(self._call(self._client.info).get("DefaultRuntime", ""))

    def start(self, spec: ContainerSpec, *, subject: str) -> None:
        """Create and start a container. Whatever happens, ``discard`` its name afterwards.

        ``subject`` is what messages call it. Raises NoProgramError and other TargetErrors.
        """
        with self._calling(explain=lambda text: explain_start(text, subject)):
            self._client.create_container_from_config(container_config(spec), spec.name)
            self._client.start(spec.name)

    def execute(
        self, container: str, argv: Sequence[str], *, stdin: bytes, output: Output
    ) -> Completed:
        """Run a program in a running container, to its end; ``output`` has the limits and listeners.

        Raises ProgramTimeoutError and ProgramFloodError (the program still runs then: discard the
        container) and ContainerEndedError.
        """

        def ended() -> bool:
            with self._calling(explain=lambda text: explain_start(text, output.name)):
                return not self._client.exec_inspect(one)["Running"]

        with self._calling(explain=lambda text: explain_start(text, output.name)):
            one = self._client.exec_create(container, list(argv), stdin=True, workdir=FOLDER)["Id"]
        with self._attached(one, output.name) as (connection, early):
            output.feed(early)
            converse(connection, output, stdin=stdin, ended=ended)
        return Completed(
            argv=tuple(argv),
            code=self._exit_code(one, output.name),
            stdout=bytes(output.stdout),
            stderr=bytes(output.stderr),
        )

    @contextlib.contextmanager
    def _attached(self, exec_id: str, subject: str) -> Iterator[tuple[socket.socket, bytes]]:
        """Start a prepared program; its connection, and what of its output was read ahead.

        The SDK's own ``exec_start(socket=True)`` hands out the bare socket and loses what the HTTP
        client below it has buffered, so this takes the same way one step earlier.
        """
        url = f"{self._client.base_url}/v{self._client.api_version}/exec/{exec_id}/start"
        with self._calling():
            response = self._client.post(
                url,
                json={"Tty": False, "Detach": False},
                headers={"Connection": "Upgrade", "Upgrade": "tcp"},
                stream=True,
                timeout=self._client.timeout,
            )
        with contextlib.closing(response):
            if response.status_code >= HTTPStatus.BAD_REQUEST:
                raise explain_start(response.text, subject)
            connection, early = unwrap(response.raw._fp.fp)  # noqa: SLF001
            with contextlib.closing(connection):
                yield connection, early

    def _exit_code(self, exec_id: str, subject: str) -> int:
        """The engine may still hold a program for running for some seconds after its output ended."""
        deadline = time.monotonic() + 5
        while True:
            with self._calling(explain=lambda text: explain_start(text, subject)):
                state = self._client.exec_inspect(exec_id)
            if not state["Running"] and state["ExitCode"] is not None:
                return int(state["ExitCode"])
            if time.monotonic() > deadline:
                raise TargetError(
                    f"{subject} closed its output but goes on running; it was stopped",
                    hint="run it by hand to see what it does",
                )
            time.sleep(0.05)

    def history(self, container: str) -> list[tuple[str, Mapping[str, str]]]:
        """What happened to a container, also to one that is gone: (``oom``, {}), (``die``, {…})."""
        with self._calling():
            events = self._client.events(
                since="1",
                until=str(int(time.time()) + 1),  # waits so long: an event may be under way
                filters={"container": container, "event": ["oom", "die"]},
                decode=True,
            )
            return [(one["Action"], one["Actor"]["Attributes"]) for one in events]

    def discard(self, container: str, *, aborted: bool = False) -> None:
        """Kill and remove a container with its volumes. Repeats for a bounded time, never raises.

        ``aborted``: the call that creates it may not have ended, so that it may yet appear.
        """
        import docker  # noqa: PLC0415

        started = time.monotonic()
        while time.monotonic() - started < _DISCARD_S:
            try:
                with self._calling():
                    self._client.remove_container(container, v=True, force=True)
            except docker.errors.NotFound:
                if not aborted or time.monotonic() - started > _ABORTED_S:
                    return
            except EngineGoneError:
                if time.monotonic() - started > _ABORTED_S:
                    return  # a container dies with its engine, and goes when that comes back
            except TargetError as error:
                log.debug("removing container %s: %s", container, error)
            time.sleep(0.1)
        log.warning("container %s could not be removed: docker rm -fv %s", container, container)

    def _inspect(self, reference: str) -> dict[str, Any] | None:
        import docker  # noqa: PLC0415

        try:
            with self._calling():
                return dict(self._client.inspect_image(reference))
        except docker.errors.NotFound:
            return None

    def _pull(self, reference: str) -> None:
        deadline = time.monotonic() + _PULL_S
        usual, self._client.timeout = self._client.timeout, int(_PULL_SILENCE_S)
        try:
            with self._calling(explain=lambda text: explain_pull(text, reference)):
                for line in self._client.pull(reference, stream=True, decode=True):
                    if "error" in line:
                        raise explain_pull(str(line["error"]), reference)
                    if time.monotonic() > deadline:
                        raise explain_pull(f"timed out after {_PULL_S:g} s", reference)
        finally:
            self._client.timeout = usual

    def _call(self, method: Any, *arguments: Any) -> Any:
        with self._calling():
            return method(*arguments)

    @contextlib.contextmanager
    def _calling(self, explain: Any = None) -> Iterator[None]:
        """Engine errors become ours. Without ``explain``, "not found" passes for the caller to take."""
        import docker  # noqa: PLC0415
        import requests  # noqa: PLC0415
        import urllib3  # noqa: PLC0415

        _knock(self.address)
        try:
            yield
        except docker.errors.APIError as error:
            said = str(error.explanation or error)
            if explain is not None:
                raise explain(said) from error
            if isinstance(error, docker.errors.NotFound):
                raise
            raise TargetError(
                f"the container engine refused: {said}", hint="the engine's own log may say more"
            ) from error
        except (
            docker.errors.DockerException,
            requests.RequestException,
            urllib3.exceptions.HTTPError,
            OSError,
            ValueError,
        ) as error:
            raise explain_connection(error, self.address) from error


def _knock(address: str) -> None:
    """Fail early: below the SDK, a socket that does not connect is never closed."""
    if not address.startswith("unix://"):
        return
    with socket.socket(socket.AF_UNIX) as door:
        try:
            door.connect(address.removeprefix("unix://"))
        except OSError as error:
            raise explain_connection(error, address) from error


def _too_old(address: str, version: str) -> EngineGoneError:
    wanted = ".".join(str(part) for part in OLDEST_API)
    return EngineGoneError(
        f"the container engine at {address} is too old: API {version}, {wanted} is needed",
        hint="use Docker Engine 19.03 or newer",
    )
