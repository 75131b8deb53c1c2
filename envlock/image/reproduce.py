"""Built twice: are both the same, and if not, which files differ?"""

from __future__ import annotations

from envlock.errors import BuildError
from envlock.image.output import ImageFiles
from envlock.image.tree import differing, read_tree

_SHOWN = 20


def compare(first: ImageFiles, second: ImageFiles, *, ids: bool = False) -> None:
    """Of both images the layers, and with ``ids`` all else that an id stands for.

    Raises BuildError that names the files.
    """
    stacks = [[blob.diff_id for blob in image.blobs] for image in (first, second)]
    if stacks[0] == stacks[1] and (not ids or first.image_id == second.image_id):
        return
    base = next(
        (n for n, pair in enumerate(zip(*stacks, strict=False)) if pair[0] != pair[1]),
        min(map(len, stacks)),
    )
    trees = [read_tree([blob.path for blob in image.blobs[base:]]) for image in (first, second)]
    lines = differing(*trees)
    more = f"\nand {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    said = "\n".join(lines[:_SHOWN]) or "only times, owners or the order of files"
    raise BuildError(
        f"built twice without cache, and the layers differ:\n{said}{more}",
        hint="this is a fault of envlock or of a package's installation; please report it",
    )
