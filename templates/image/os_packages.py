"""Install the pinned distribution packages of ``os-packages.txt``, and leave nothing else behind."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

HERE = Path("/run/envlock")
CA_BUNDLE = Path("/run/secrets/ca_bundle")
LEFT_BEHIND = ("/var/lib/apt/lists", "/var/cache/apt", "/var/log", "/var/cache/debconf")


def main() -> None:
    pins = (HERE / "os-packages.txt").read_text("ascii").split()
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}
    options = ["-o", f"Acquire::https::CaInfo={CA_BUNDLE}"] if CA_BUNDLE.exists() else []
    apt = ["/usr/bin/apt-get", "-q", *options]
    for command in (["update"], ["install", "--yes", "--no-install-recommends", "--", *pins]):
        subprocess.run([*apt, *command], env=environment, check=True, stdin=subprocess.DEVNULL)
    for folder in LEFT_BEHIND:
        for path in sorted(Path(folder).glob("*")):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


if __name__ == "__main__":
    main()
