"""Build wheels from source archives, with the lock's own tools and nothing else, into /built.

Runs in a stage of its own: what it leaves anywhere else is not in the image. The archives' hashes
were checked before they came here. Folders, times and variables are fixed, so that a build that
does not look at the clock gives the same bytes each time.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # -I leaves it out

from install import EPOCH, HERE, install, make_environment

BUILD = Path("/build")
BUILT = Path("/built")


def main() -> None:
    plan = json.loads((HERE / "plan.json").read_text("utf-8"))
    prefix = Path(plan["prefix"])
    make_environment(prefix)
    install(prefix, HERE / "requirements.txt")
    BUILT.mkdir()
    for source in plan["sources"]:
        folder = unpack(HERE / "wheels" / source["file"], BUILD / source["name"])
        build(source["name"], folder, prefix)


def unpack(archive: Path, folder: Path) -> Path:
    """Into a folder that is called the same each time; returns the one that the archive holds."""
    folder.mkdir(parents=True)
    shutil.unpack_archive(archive, folder)  # which trusts it: what is in it is run next anyway
    inside = list(folder.iterdir())
    if len(inside) != 1:
        sys.exit(f"envlock: {archive.name} holds {len(inside)} folders, not one")
    return inside[0]


def build(name: str, folder: Path, prefix: Path) -> None:
    sys.stderr.write(f"building {name} from source\n")
    environment = {
        **os.environ,
        "PATH": f"{prefix}/bin:{os.environ.get('PATH', '/usr/bin:/bin')}",
        "HOME": "/nonexistent",
        "LC_ALL": "C.UTF-8",
        "SOURCE_DATE_EPOCH": str(EPOCH),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [str(HERE / "uv"), "build", "--wheel", "--no-config", "--no-cache", "--offline"]
    command += ["--no-python-downloads", "--python", str(prefix / "bin" / "python")]
    command += ["--no-index", "--no-build-isolation", "--out-dir", str(BUILT / name), str(folder)]
    code = subprocess.call(command, env=environment, stdin=subprocess.DEVNULL)
    if code:
        sys.exit(f"envlock: {name} could not be built from source (exit code {code})")


if __name__ == "__main__":
    main()
