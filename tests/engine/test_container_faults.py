"""The engine fails while a container of ours is in use: the right message, and nothing left."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from envlock.errors import TargetError
from envlock.targets.container import ImageTarget
from envlock.targets.engine import Engine, ImageInfo
from envlock.targets.engine_errors import EngineGoneError
from envlock.targets.process import Limits
from tests.engine.cutting_proxy import CuttingProxy
from tests.engine.test_container import containers_of, docker

SLEEP = ("-c", "import time; time.sleep(60)")


@pytest.fixture
def proxy(
    base_image: ImageInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CuttingProxy]:
    with CuttingProxy(tmp_path / "proxy.sock") as one:
        monkeypatch.setenv("DOCKER_HOST", f"unix://{one.path}")
        yield one
    for name in containers_of(base_image):
        docker("rm", "-fv", name)


def sleep_in(image: ImageInfo, then: Callable[[], None]) -> None:
    """``then`` happens while a program runs in a container of the image."""
    engine = Engine.connect()
    with ImageTarget(engine=engine, image=engine.resolve(image.reference)) as target:
        threading.Timer(1, then).start()
        target.run([target.interpreter, *SLEEP], limits=Limits(timeout_s=30))


def test_an_engine_that_goes_away_in_a_call(proxy: CuttingProxy, base_image: ImageInfo) -> None:
    started = time.monotonic()
    with pytest.raises(EngineGoneError, match=r"no container engine here|is down"):
        sleep_in(base_image, proxy.close)
    assert time.monotonic() - started < 25


def test_a_connection_that_is_cut_in_a_call(proxy: CuttingProxy, base_image: ImageInfo) -> None:
    with pytest.raises(TargetError, match="closed its output but goes on running"):
        sleep_in(base_image, proxy.cut)
    assert containers_of(base_image) == []


@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.2, 0.3, 0.5, 0.8])
def test_a_connection_that_is_cut_while_a_container_starts(
    proxy: CuttingProxy, base_image: ImageInfo, after_s: float
) -> None:
    """It may come through or not; what is not allowed is another error, or a container left."""
    engine = Engine.connect()
    threading.Timer(after_s, proxy.cut).start()
    with (
        contextlib.suppress(TargetError),
        ImageTarget(engine=engine, image=base_image) as target,
    ):
        target.run([target.interpreter, "-V"], limits=Limits(timeout_s=30))
    assert containers_of(base_image) == []
