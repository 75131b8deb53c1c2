"""What a person chooses about a build. Apart, for the command line is read before all else loads."""

from __future__ import annotations

from enum import Enum


class Flavour(Enum):
    """What an image is for."""

    AUTO = "auto"
    RUNTIME = "runtime"
    DEVEL = "devel"


class EngineChoice(Enum):
    """What may build."""

    AUTO = "auto"
    DOCKER = "docker"
    BUILDAH = "buildah"
    NONE = "none"
