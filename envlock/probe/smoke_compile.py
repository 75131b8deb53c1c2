"""How often torch.compile compiles again when lengths change, and what each graph costs the host."""

from __future__ import annotations

from typing import Any, Dict, List

import smoke_memory

LENGTHS = tuple(range(3, 15))
"""Twelve lengths; 0 and 1 are special to the compiler."""


def compile_counts(torch: Any) -> Dict[str, int]:
    """Graphs made for twelve lengths, with shapes taken as fixed and with automatic shapes."""
    if not hasattr(torch, "compile"):
        raise RuntimeError("this torch has no torch.compile")
    found = {}
    in_use, _ = smoke_memory.malloc_counter()
    before = in_use() if in_use else 0
    for name, dynamic in (("graphs_fixed", False), ("graphs_automatic", None)):
        graphs: List[int] = []
        torch._dynamo.reset()  # noqa: SLF001 - its public name came with 2.1
        step = torch.compile(_step, backend=_counting(graphs), dynamic=dynamic)
        for length in LENGTHS:
            step(torch.ones(4, length))
        found[name] = len(graphs)
    if in_use:
        made = found["graphs_fixed"] + found["graphs_automatic"]
        found["host_bytes_per_graph"] = (in_use() - before) // max(made, 1)
    return found


def _step(values: Any) -> Any:
    return (values * 2).relu().sum(-1)


def _counting(graphs: List[int]) -> Any:
    def backend(graph: Any, _: Any) -> Any:
        graphs.append(1)
        return graph.forward

    return backend
