"""The probe's files as modules, for tests of their functions. Not a test module.

In production they are text that is fed to another interpreter (``envlock.targets.bundle``).
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from envlock.targets.base import PROBES


def probe_module(name: str) -> Any:
    """The probe file ``name``, imported as if its folder were a script's."""
    sys.path.insert(0, str(PROBES))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(PROBES))
