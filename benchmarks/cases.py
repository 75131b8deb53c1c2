"""Score diff, doctor and import against a folder of bug reports: ``python -m benchmarks.cases DIR``.

Prints a JSON list with one object a case. ``verdict`` is

    HIT           a finding of the expected severity leads, its code fits the case's kind, and its
                  evidence holds one of the facts that prove the cause
    PARTIAL       that finding is there but does not lead, or its severity or code is another
    MISS          nothing was found
    WRONG         another error leads
    FALSE ALARM   an error or a warning in a case without a fault
    QUIET         a case without a fault was left alone
    NOT SCORED    the case is for other parts of the tool, or rests on facts no observation has
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.case_facts import translate
from benchmarks.case_tree import Translation
from envlock.diff.judge import judge_one, judge_pair
from envlock.findings import Evidence, Finding, Severity, Side
from envlock.lock.observation import Observation
from envlock.targets.texts import parse_text

SCORED_BY = frozenset({"diff", "doctor", "import", "lock"})

FAMILIES: dict[str, str] = {
    "abi-mismatch": "2",
    "allocator-config": "7",
    "arch-not-in-wheel": "5",
    "broken-metadata": "1",
    "cgroup-memory": "6",
    "collect-tool-crash": "19",
    "collect-tool-gap": "29",
    "companion-mismatch": "12",
    "container-gpu-lost": "4",
    "container-no-gpu": "4",
    "cpu-only-torch": "2",
    "cudnn-shadowed": "3",
    "cudnn-version": "3",
    "device-permission": "6",
    "driver-mismatch": "4",
    "driver-service": "4",
    "driver-too-old": "4",
    "ecc": "5",
    "env-var": "7",
    "forward-compat": "4",
    "freeze-not-portable": "9",
    "glibc-too-old": "6",
    "hash-mismatch": "9",
    "library-shadowed": "3",
    "libstdcxx": "6",
    "lock-index": "129",
    "memory-change": "28",
    "mig": "5",
    "missing-compiler": "3",
    "mixed-packages": "3",
    "nccl-mismatch": "3",
    "numpy-2": "1",
    "nvcc-mismatch": "3",
    "rocm-arch": "5",
    "small-shm": "6",
    "split-site-packages": "3",
    "tf32": "57",
    "torchvision-mismatch": "2",
    "triton-mismatch": "2",
    "user-site": "1",
    "wrong-python-build": "1",
    "wsl": "4",
}
"""Kind of a case -> first digits of the codes that speak of such a fault."""

_WORKS = ("work", "pass", "right", "good", "exact", "before", "author", "gpu node", "ok")
_FAILS = ("fail", "wrong", "broken", "bad", "after", "crash", "round", "cpu node")


def _failing(case: dict[str, Any]) -> str:
    """Which of two environments the fault is in, by its label; the first where none says."""
    labels = {side: str(case[side].get("label", "")).lower() for side in "ab"}
    if any(word in labels["b"] for word in _FAILS):
        return "b"
    if any(word in labels["a"] for word in _WORKS) and not any(
        word in labels["b"] for word in _WORKS
    ):
        return "b"
    return "a"


def _imported(folder: Path, case: dict[str, Any], side: str) -> Observation | None:
    report = case.get("collect_env")
    if not report or report["describes"] != side:
        return None
    return parse_text((folder / report["file"]).read_text(encoding="utf-8"))


def score(folder: Path) -> dict[str, Any]:
    case = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    sides = {
        side: translate(case[side], _imported(folder, case, side))
        for side in "ab"
        if case.get(side)
    }
    if len(sides) == 2:
        right = _failing(case)
        names = {Side.RIGHT: right, Side.LEFT: "a" if right == "b" else "b"}
        pair = (sides[names[Side.LEFT]].observation(), sides[right].observation())
        judged = judge_pair(*pair)
    else:
        names = {Side.RIGHT: next(iter(sides))}
        judged = judge_one(sides[names[Side.RIGHT]].observation())
    evidence = _Evidence(sides, names, case["expected"]["facts"])
    verdict, reason = _verdict(case, judged.findings, evidence)
    lead = judged.findings[0] if judged.findings else None
    return {
        "id": case["id"],
        "kind": case["kind"],
        "verdict": verdict,
        "leading": lead.code if lead else None,
        "severity": lead.severity.value if lead else None,
        "reason": reason,
        "findings": [_shown(finding, evidence) for finding in judged.findings],
    }


class _Evidence:
    """Which facts of the case the evidence of a finding stands for."""

    def __init__(
        self, sides: dict[str, Translation], names: dict[Side, str], expected: list[str]
    ) -> None:
        self._sides = sides
        self._names = names
        self.expected = expected

    def key(self, evidence: Evidence) -> str | None:
        side = self._names.get(evidence.side)
        key = self._sides[side].key_of(evidence.path) if side else None
        return f"{side}.{key}" if key else None

    def proves(self, finding: Finding) -> bool:
        keys = {key for e in finding.evidence if (key := self.key(e))}
        return any(_same(key, fact) for key in keys for fact in self.expected)

    def is_readable(self) -> bool:
        """Whether any of the expected facts became a fact of an observation."""
        keys = [f"{side}.{key}" for side, t in self._sides.items() for key in t.keys.values()]
        return any(_same(key, fact) for key in keys for fact in self.expected)


def _same(key: str, fact: str) -> bool:
    return key == fact or key.startswith(f"{fact}.") or fact.startswith(f"{key}.")


def _verdict(
    case: dict[str, Any], findings: tuple[Finding, ...], evidence: _Evidence
) -> tuple[str, str]:
    if not SCORED_BY & set(case["seen_by"]):
        return "NOT SCORED", f"for {', '.join(case['seen_by'])} only"
    if Severity(case["expected"]["severity"]) is Severity.INFO:
        return _verdict_without_fault(findings, evidence)
    if not evidence.is_readable():
        return "NOT SCORED", f"rests on {', '.join(evidence.expected)}, which no observation has"
    return _verdict_of_fault(case, findings, evidence)


def _verdict_without_fault(findings: tuple[Finding, ...], evidence: _Evidence) -> tuple[str, str]:
    loud = next((f for f in findings if f.severity is not Severity.INFO), None)
    if loud:
        return "FALSE ALARM", f"{loud.code} on {loud.subject}"
    if findings and evidence.proves(findings[0]):
        return "HIT", f"{findings[0].code} names it"
    return "QUIET", "left alone"


def _verdict_of_fault(
    case: dict[str, Any], findings: tuple[Finding, ...], evidence: _Evidence
) -> tuple[str, str]:
    loud = [f for f in findings if f.severity is not Severity.INFO]
    if not loud:
        return "MISS", "no error and no warning"
    lead = loud[0]
    family = FAMILIES.get(case["kind"], "123456789")
    if evidence.proves(lead):
        if lead.severity.value != case["expected"]["severity"]:
            return "PARTIAL", f"{lead.code} leads, as {lead.severity.value}"
        fits = lead.code[2] in family
        return ("HIT" if fits else "PARTIAL"), f"{lead.code} on {lead.subject} leads"
    if lead.severity is Severity.ERROR:
        return "WRONG", f"{lead.code} on {lead.subject} leads"
    later = any(evidence.proves(f) for f in loud)
    return ("PARTIAL" if later else "MISS"), f"{lead.code} on {lead.subject} leads"


def _shown(finding: Finding, evidence: _Evidence) -> dict[str, Any]:
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "subject": finding.subject,
        "message": finding.message,
        "evidence": [
            {"side": e.side.value, "path": e.path, "value": e.value, "fact": evidence.key(e)}
            for e in finding.evidence
        ],
        "folded": [f.code for f in finding.folded],
    }


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print("usage: python -m benchmarks.cases DIR", file=sys.stderr)
        return 2
    folders = sorted(path.parent for path in Path(arguments[0]).glob("*/case.json"))
    scores = [score(folder) for folder in folders]
    print(json.dumps(scores, indent=1, ensure_ascii=False))
    counts: dict[str, int] = {}
    for entry in scores:
        counts[entry["verdict"]] = counts.get(entry["verdict"], 0) + 1
    print(", ".join(f"{v} {n}" for v, n in sorted(counts.items())), file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
