"""Manual pages of what ``envlock verify`` finds about an image as a whole."""

from __future__ import annotations

from envlock.findings import Severity
from envlock.rules.base import page

LAYERS = page(
    "EL951",
    Severity.WARNING,
    """
    The image does not hold the layers that the lock's first build recorded.

    The assembler gives the same layers on every machine. An image that has others was built in
    another way, from an altered lock, or changed afterwards. What is in it is compared besides; this
    says that it is not the artifact that was built first.

    To do: build it again from the lock, or take `[tool.envlock.image]` out of the lock where another
    way of building is meant.
    """,
)

SIZE = page(
    "EL952",
    Severity.ERROR,
    """
    The image is larger than the policy allows.

    To do: see the layers' sizes (`envlock build --metadata FILE`, `docker history`); a second copy of
    CUDA in the base, caches and test data are the usual causes. Or raise `max_size`.
    """,
)

BASE = page(
    "EL953",
    Severity.ERROR,
    """
    The image stands upon a base that the policy does not allow.

    The base is the one that the lock recorded, and is believed only where the image begins with
    exactly its layers.

    To do: build upon an allowed base (`envlock build --base REF`), or add it to `bases`.
    """,
)

UNDECIDED = page(
    "EL954",
    Severity.ERROR,
    """
    What the policy demands could not be checked.

    A gate that cannot be decided is closed: what was not checked never passes.

    To do: the message names the fact that is missing and where it would come from.
    """,
)

TRIGGERS = page(
    "EL955",
    Severity.ERROR,
    """
    The image has ONBUILD instructions.

    They run in every build upon it, without standing in that build's Dockerfile. envlock's own images
    never have any, and none is taken as a base without being asked.

    To do: build the image without them.
    """,
)

PAGES = (LAYERS, SIZE, BASE, UNDECIDED, TRIGGERS)
