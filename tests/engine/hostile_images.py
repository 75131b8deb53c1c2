"""Images that do what no honest image does, each as the lines that follow ``FROM`` the base."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator

_FAKE_PYTHON = (
    "RUN rm -f /usr/bin/python3 && "
    r"printf '#!/bin/sh\n{body}\n' > /usr/bin/python3 && chmod 755 /usr/bin/python3"
)
_SITE = r"RUN mkdir /evil && printf '{body}' > /evil/sitecustomize.py" "\nENV PYTHONPATH=/evil"

IMAGES: dict[str, str] = {
    "entrypoint": 'ENTRYPOINT ["/bin/echo", "forged"]',
    "env": (
        r"RUN mkdir /evil && printf 'print(\"forged\")' > /evil/start.py"
        r" && printf 'print(\"banner\")' > /evil/sitecustomize.py"
        "\nENV PYTHONSTARTUP=/evil/start.py PYTHONPATH=/evil LD_PRELOAD=/evil/none.so"
    ),
    "healthcheck": "HEALTHCHECK --interval=1s CMD touch /data/checked\nVOLUME /data",
    "volume": "RUN mkdir /data && touch /data/file\nVOLUME /data /tmp",
    "proc-volume": "VOLUME /proc",
    "user": "USER root",
    "workdir": r"RUN mkdir /evil && printf 'print(\"forged\")' > /evil/json.py" "\nWORKDIR /evil",
    "threads": "ENV OMP_NUM_THREADS=3",
    "no-python": "RUN rm -f /usr/bin/python*",
    "not-executable": "RUN rm /usr/bin/python3 && echo text > /usr/bin/python3",
    "no-program": r"RUN rm /usr/bin/python3 && printf '\0\1\2\3' > /usr/bin/python3"
    " && chmod 755 /usr/bin/python3",
    "label": "RUN mv /usr/bin/python3 /usr/bin/snake\nLABEL org.envlock.python=/usr/bin/snake",
    "only-python": "RUN mv /usr/bin/python3 /usr/bin/python",
    "ends-at-once": _FAKE_PYTHON.format(body="exit 3"),
    "floods": _FAKE_PYTHON.format(body="exec yes flood"),
    "hangs": _FAKE_PYTHON.format(body='trap "" TERM INT; while :; do sleep 1; done'),
    "garbage-only": _FAKE_PYTHON.format(
        body=r"case \"$*\" in *sleep*) exec sleep 100;; esac; printf \"\\\\377\\\\376\""
    ),
    "garbage": _SITE.format(body=r"import os; os.write(1, bytes([255, 254, 0, 10]))"),
    "grandchild": _SITE.format(body=r"import os, time\nif os.fork() == 0: time.sleep(1000)\n"),
    "memory": _SITE.format(body=r"held = bytearray(10 ** 10)"),
    "error-flood": _SITE.format(
        body=r"import os\nfor _ in range(64): os.write(2, bytes(1000000))\n"
    ),
    "onbuild": "ONBUILD RUN touch /onbuild",
}


@contextlib.contextmanager
def hostile_image(name: str, base: str) -> Iterator[str]:
    """The image's tag, while the context is open."""
    tag = f"envlock-test-{name}:{secrets.token_hex(4)}"
    docker = shutil.which("docker")
    assert docker, "the engine tier needs the docker client"
    built = subprocess.run(
        [docker, "build", "-q", "--network", "none", "-t", tag, "-"],
        input=f"FROM {base}\n{IMAGES[name]}\n",
        env={**os.environ, "DOCKER_BUILDKIT": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    try:
        yield tag
    finally:
        subprocess.run([docker, "rmi", "-f", tag], capture_output=True, check=False)
