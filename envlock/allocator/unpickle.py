"""Reading a pickle that may come from anybody: plain containers only, nothing is ever called.

A pickle runs code by naming a class or function; every such name is refused, wherever the pickle
gets it from. What is left can still be large: a byte may become an empty dictionary of 64, so a
caller that does not trust the file also limits the memory of the process (``child`` does).
"""

from __future__ import annotations

import pickle  # find_class below refuses every name, so nothing in a pickle can be called
from typing import IO, Any, NoReturn

from envlock.errors import InputError

_HINT = "a snapshot is what torch.cuda.memory._dump_snapshot(FILE) writes"


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        name = f"{module_name}.{global_name}"[:200]
        raise InputError(
            f"the pickle asks for {name!r}, and a memory snapshot never names a class", hint=_HINT
        )

    def persistent_load(self, pid: Any, /) -> NoReturn:
        del pid
        raise InputError("the pickle points outside itself, which no snapshot does", hint=_HINT)


def load_plain(file: IO[bytes]) -> Any:
    """The one object in a pickle made of dictionaries, lists, tuples, strings and numbers.

    Raises InputError for anything else, and for a pickle that is cut, broken or too large.
    """
    try:
        return _PlainUnpickler(file).load()
    except InputError:
        raise
    except MemoryError as error:
        raise InputError(
            "the snapshot needs more memory than reading it may take, or is broken",
            hint="record fewer events (max_entries of _record_memory_history), or allow more",
        ) from error
    except Exception as error:  # a broken pickle raises nearly anything
        raise InputError(
            f"not a readable pickle: {type(error).__name__}: {str(error)[:200]}", hint=_HINT
        ) from error
