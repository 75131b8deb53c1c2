"""What training needs in memory, counted so that two runs give the same bytes.

Resident size and the like differ from run to run and miss leaks. Two counts do not: the lifetimes
of tensor storages (``tensor_peak``), and the allocator's own events over the whole life of a loop
(``allocator_peak``). Leaks are slopes per step (``leak_slopes``).
"""

from __future__ import annotations

import ctypes
import gc
from typing import Any, Callable, Dict, List, Optional, Tuple

MEMORY_STEPS = 3
LEAK_WARM_UP, LEAK_STEPS = 4, 12


def storage_of(tensor: Any) -> Any:
    """The storage, or None for layouts that have none of their own (sparse, nested)."""
    try:
        if hasattr(tensor, "untyped_storage"):
            return tensor.untyped_storage()
        return tensor.storage().untyped()  # torch 1.13
    except (NotImplementedError, RuntimeError):
        return None


def address_of(storage: Any) -> int:
    """Of the storage's record, not of its bytes: also fake and empty storages have one."""
    return int(storage._cdata)  # noqa: SLF001 - there is no public name for it


def make_lifetimes(torch: Any, events: Optional[List[List[int]]] = None) -> Any:
    """A dispatch mode that follows every storage from the operator that made it to its release.

    ``events`` gets ``[number, bytes]`` for each storage made, ``[number, 0]`` for each released.
    """
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode

    class Lifetimes(TorchDispatchMode):
        """``live`` and ``peak`` in bytes, ``operators`` by name in order of first use.

        A storage is known by its address, which is safe only because a weak reference is held: it
        keeps the address from being used again before the release was seen. Releases are looked
        for before and after each operator, which is when the peak can move.
        """

        def __init__(self) -> None:
            super().__init__()
            self.live = 0
            self.peak = 0
            self.operators = {}
            self._known = {}
            self._made = 0

        def __torch_dispatch__(
            self, func: Any, _types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.settle()
            result = func(*args, **(kwargs or {}))
            name = str(func)
            self.operators[name] = self.operators.get(name, 0) + 1
            self._add(result)
            self.settle()
            return result

        def ignore(self, tensor: Any) -> None:
            """Leave out a storage that was there before, of which the loop only makes views."""
            storage = storage_of(tensor)
            self._known[address_of(storage)] = (StorageWeakRef(storage), None, 0)

        def settle(self) -> None:
            gone = [key for key, (reference, _, _) in self._known.items() if reference.expired()]
            for key in gone:
                _, size, number = self._known.pop(key)
                self.live -= size or 0
                if events is not None and size:
                    events.append([number, 0])

        def _add(self, value: Any) -> None:
            if isinstance(value, torch.Tensor):
                storage = storage_of(value)
                if storage is not None:
                    self._add_storage(storage)
            elif isinstance(value, (list, tuple)):
                for item in value:
                    self._add(item)

        def _add_storage(self, storage: Any) -> None:
            """Also sees a known storage that was resized in place, as a block of its own."""
            key, size = address_of(storage), storage.nbytes()
            reference, before, number = self._known.get(key) or (StorageWeakRef(storage), 0, 0)
            if before is None or before == size:
                return
            if events is not None:
                if before:
                    events.append([number, 0])
                self._made += 1
                number = self._made
                if size:
                    events.append([number, size])
            self._known[key] = (reference, size, number)
            self.live += size - before
            self.peak = max(self.peak, self.live)

    return Lifetimes()


def tensor_peak(torch: Any, workloads: Any, name: str, **changes: Any) -> Dict[str, Any]:
    """Peak and end-of-step bytes of tensor storages over build and some steps."""
    with make_lifetimes(torch) as lifetimes:
        lifetimes.ignore(workloads.numbers.pool)
        loop = workloads.build(name, **changes)
        ends = []
        for _ in range(MEMORY_STEPS):
            loop.step()
            lifetimes.settle()
            ends.append(lifetimes.live)
        operators = dict(lifetimes.operators)
        del loop
        gc.collect()
        lifetimes.settle()
        left = lifetimes.live
    return {
        "peak": lifetimes.peak,
        "step_end": ends[-1],
        "left": left,
        "ops": sorted("%s x%d" % (_short(name), count) for name, count in operators.items()),
    }


def _short(operator: str) -> str:
    """``aten.add.Tensor`` -> ``add.Tensor``, ``aten.view.default`` -> ``view``."""
    parts = operator.split(".")
    if parts[0] == "aten":
        del parts[0]
    if parts[-1] == "default":
        del parts[-1]
    return ".".join(parts)


class MallInfo2(ctypes.Structure):
    """``struct mallinfo2`` of glibc 2.33 and later: ten counters of machine words."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def malloc_counter() -> Tuple[Optional[Callable[[], int]], Optional[str]]:
    """A function that gives the bytes malloc has handed out, or the reason why there is none."""
    try:
        libc = ctypes.CDLL(None)
        mallinfo2 = libc.mallinfo2
    except (AttributeError, OSError, TypeError):
        return None, "this C library has no mallinfo2 (glibc before 2.33, or another library)"
    mallinfo2.restype = MallInfo2
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]

    def in_use() -> int:
        info = mallinfo2()
        return info.uordblks + info.hblkhd  # heaps, and blocks mapped on their own

    before = in_use()
    block = libc.malloc(1 << 22)
    seen = in_use() - before
    libc.free(block)
    if seen < 1 << 22:
        return None, "malloc is replaced in this process, so the C library does not see it"
    return in_use, None


def theil_sen(values: List[int]) -> float:
    """Median of the slopes between all pairs: one jump does not move it."""
    slopes = sorted(
        (later - earlier) / (j - i)
        for i, earlier in enumerate(values)
        for j, later in enumerate(values)
        if j > i
    )
    middle = len(slopes) // 2
    return slopes[middle] if len(slopes) % 2 else (slopes[middle - 1] + slopes[middle]) / 2


def leak_slopes(
    torch: Any, loop: Any, after_step: Optional[Callable[[Any], None]] = None
) -> Dict[str, int]:
    """Growth per step of what malloc handed out, of tensor storages and of tensors with a graph;
    and of what is allocated on the GPU, for a loop that runs there.

    ``after_step(loss)`` is where a negative control plants its leak. Objects made before the loop
    are frozen out of the collector's sight: looking through all of them costs 30-70 ms a step.
    """
    in_use, _ = malloc_counter()
    on_gpu = loop.parameters[0].is_cuda
    for _ in range(LEAK_WARM_UP):
        loss = loop.step()
        if after_step:
            after_step(loss)
    loss = None
    gc.collect()
    gc.freeze()
    series: Dict[str, List[int]] = {"malloc": [], "tensor": [], "grad_fn": [], "device": []}
    try:
        for _ in range(LEAK_STEPS + 1):
            loss = loop.step()
            loss.item()
            if after_step:
                after_step(loss)
            loss = None
            gc.collect()
            if in_use:
                series["malloc"].append(in_use())
            size, graphs = _live_tensors(torch)
            series["tensor"].append(size)
            series["grad_fn"].append(graphs)
            if on_gpu:
                series["device"].append(torch.cuda.memory_allocated())
    finally:
        gc.unfreeze()
    return {name: round(theil_sen(values)) for name, values in series.items() if values}


def _live_tensors(torch: Any) -> Tuple[int, int]:
    """Bytes of distinct storages, and tensors with a graph, made since ``gc.freeze``."""
    storages, graphs = {}, 0
    for value in gc.get_objects():
        if issubclass(type(value), torch.Tensor):
            graphs += value.grad_fn is not None
            storage = storage_of(value)
            if storage is not None:
                storages[address_of(storage)] = storage.nbytes()
    return sum(storages.values()), graphs
