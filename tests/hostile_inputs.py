"""Hostile inputs as data: the files of a directory, and the values that they describe."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SAFE_NODES = (
    *(ast.Expression, ast.Constant, ast.BinOp, ast.Add, ast.Mult, ast.Mod, ast.Call, ast.Name),
    *(ast.Load, ast.Store, ast.List, ast.Tuple, ast.Dict, ast.ListComp, ast.comprehension),
    ast.Attribute,
)
_SAFE_NAMES = {"chr": chr, "range": range, "str": str, "bytes": bytes}
_SECRET = re.compile(r"(?:contain|print|write|print or write) (\S+)")
CANARY = "s3cr3t-canary"


@dataclass(frozen=True, kw_only=True, slots=True)
class Input:
    """One case of a file; ``values`` are what a list stands for, one after the other."""

    id: str
    field: str
    values: Sequence[Any]
    sentence: str | None
    """How to make the value, where it is no expression."""
    other_fields: Mapping[str, Any]
    action: str
    words: Sequence[str]
    must_not: Sequence[str]
    twin: str | None
    sink: str | None

    @property
    def refused(self) -> bool:
        """Whether the command must fail: words are those of its message."""
        return self.action == "reject" or (
            bool(self.words) and self.action in {"limit", "neutralise", "redact"}
        )

    @property
    def secrets(self) -> list[str]:
        found = [match[1] for text in self.must_not if (match := _SECRET.fullmatch(text))]
        return [CANARY, *found]


def read_inputs(folder: Path) -> list[Input]:
    """Every case of every ``*.json``. Raises ValueError when there is none or one is malformed."""
    inputs = []
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text("ascii"))
        for case in document["cases"]:
            try:
                inputs.append(_input(case))
            except (KeyError, TypeError) as error:
                raise ValueError(f"{path.name}: {case.get('id')}: {error!r}") from error
    if not inputs:
        raise ValueError(f"{folder}: no inputs")
    return inputs


def _input(case: Mapping[str, Any]) -> Input:
    correct = case["correct"]
    sentence = case.get("build")
    values: Any = [case["value"]] if "value" in case else []
    if values and isinstance(values[0], list) and not case["field"].endswith("[]"):
        values = values[0]
    if sentence is not None:
        made = expression(sentence)
        values, sentence = ([made], None) if made is not None else ([], sentence)
    return Input(
        id=case["id"],
        field=case["field"],
        values=values,
        sentence=sentence,
        other_fields=case.get("other_fields", {}),
        action=correct["action"],
        words=correct.get("message_must_mention", []),
        must_not=correct.get("must_not", []),
        twin=case.get("benign_twin_that_must_still_work"),
        sink=case.get("sink"),
    )


def expression(text: str) -> Any:
    """The value of a Python expression of constants, ``+ * %``, ``chr``, ``range`` and ``join``.

    None for a sentence. Nothing else is evaluated: the files come from outside.
    """
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        return None
    bound = set(_SAFE_NAMES)
    for node in ast.walk(tree):
        if isinstance(node, ast.comprehension) and isinstance(node.target, ast.Name):
            bound.add(node.target.id)
    for node in ast.walk(tree):
        if not isinstance(node, _SAFE_NODES):
            return None
        if isinstance(node, ast.Name) and node.id not in bound:
            return None
        if isinstance(node, ast.Attribute) and node.attr != "join":
            return None
    return eval(compile(tree, "<input>", "eval"), {"__builtins__": {}, **_SAFE_NAMES})
