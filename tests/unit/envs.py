"""Small observations for tests: ``env({"torch/cuda": "12.1", "gpus": [gpu("8.6")]})``."""

from __future__ import annotations

from typing import Any

from envlock.diff.judge import Judgement, judge_one, judge_pair
from envlock.findings import Finding, Severity
from envlock.lock.observation import Observation

ABSENT = {"absent": True}
Facts = dict[str, Any]


def env(*facts: Facts) -> Observation:
    """Paths are joined with slashes, because names hold dots. None is absent; later facts win."""
    tree: dict[str, Any] = {}
    for path, value in {k: v for part in facts for k, v in part.items()}.items():
        *folders, last = path.split("/")
        node = tree
        for folder in folders:
            node = node.setdefault(folder, {})
        node[last] = ABSENT if value is None else value
    return Observation.read(tree)


def gpu(capability: str | None = None, name: str | None = None, **more: Any) -> dict[str, Any]:
    entry = {"compute_capability": capability, "name": name}
    return {**{k: v for k, v in entry.items() if v is not None}, **more}


def package(version: str | None = None, **more: Any) -> dict[str, Any]:
    return {**({"version": version} if version else {}), **more}


def torch(version: str, cuda: str | None = None, **more: Any) -> Facts:
    """A torch with its version in all places that hold it."""
    release, _, local = version.partition("+")
    facts: Facts = {"torch/version": version, "torch/release": release}
    if local:
        facts["torch/local"] = local
    if cuda is not None:
        facts |= {"torch/cuda": cuda, "torch/build": "cuda"}
    return facts | {f"torch/{key}": value for key, value in more.items()}


def one(*facts: Facts) -> Judgement:
    return judge_one(env(*facts))


def pair(left: Facts, right: Facts, *, exact: bool = False) -> Judgement:
    return judge_pair(env(left), env(right), exact=exact)


def codes(judgement: Judgement) -> list[str]:
    return [finding.code for finding in judgement.findings]


def loud(judgement: Judgement) -> list[Finding]:
    return [f for f in judgement.findings if f.severity is not Severity.INFO]


def lead(judgement: Judgement) -> Finding:
    assert judgement.findings, "nothing was found"
    return judgement.findings[0]


def check_lead(judgement: Judgement, code: str, severity: Severity) -> Finding:
    """This one leads."""
    finding = lead(judgement)
    assert (finding.code, finding.severity) == (code, severity)
    return finding
