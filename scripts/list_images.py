"""The images of ``images/`` as a line for a workflow's output: ``names=["torch-2.13.0-cpu", …]``.

Needs nothing but Python: it runs before anything is installed.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

IMAGES = Path(__file__).resolve().parent.parent / "images"


def main() -> None:
    names = sorted(lock.parent.name for lock in IMAGES.glob("*/pylock.env.toml"))
    strange = [name for name in names if not re.fullmatch(r"[a-z0-9.-]+", name)]
    if strange or not names:
        sys.exit(f"images/ has no images, or some with strange names: {strange}")
    sys.stdout.write(f"names={json.dumps(names)}\n")


if __name__ == "__main__":
    main()
