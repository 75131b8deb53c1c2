"""What a rule is: a small pure function over one environment or a pair of them.

A rule yields faults and knows nothing of order, folding or formats. It reads facts through
``Env``: ``need`` where it cannot decide without the fact, ``peek`` where it can. The docstring is
the manual: first line what the finding means, then why, then what to do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from envlock.facts import Change
from envlock.findings import Severity, Side
from envlock.lock.observation import Absent, Observation, Unknown

REFERENCE = "the reference"
"""How messages name the left side: a lock, a colleague's report, a run that worked."""
HERE = "this environment"
"""How messages name the right side."""


SET_BY_ENVLOCK = Unknown(unknown="set by envlock's own run options")


class UndecidedError(Exception):
    """A rule needs a fact that is unknown."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


class OneSidedError(UndecidedError):
    """A difference that would be an error cannot be decided: one side does not say.

    Reported as a warning, so it is for facts that could be the cause of everything.
    """


class DoesNotApplyError(Exception):
    """There is nothing for this rule to look at: no GPU, no torch."""


@dataclass(frozen=True, slots=True)
class Env:
    """One observation and the side it stands on."""

    observation: Observation
    side: Side
    _found: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Many rules ask for the same facts."""
    _versions: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    def find(self, path: str) -> Any:
        """A value, ABSENT or Unknown. What envlock itself set says nothing about the target."""
        if path not in self._found:
            ours = self.observation.set_by_envlock
            hidden = any(path == own or path.startswith(f"{own}.") for own in ours)
            self._found[path] = SET_BY_ENVLOCK if hidden else self.observation.find(path)
        return self._found[path]

    def need(self, path: str) -> Any:
        """The value; the rule ends here as undecided, or as not applicable where it is absent."""
        found = self.known(path)
        if found is None:
            raise DoesNotApplyError(path)
        return found

    def known(self, path: str) -> Any:
        """The value, or None where it is known to be absent; undecided where it is unknown."""
        found = self.find(path)
        if isinstance(found, Unknown):
            raise UndecidedError(path, found.unknown)
        return None if isinstance(found, Absent) else found

    def peek(self, path: str) -> Any:
        """The value, or None where it is absent or unknown."""
        found = self.find(path)
        return None if isinstance(found, Absent | Unknown) else found

    def lacks(self, path: str) -> bool:
        """True where the fact is recorded as absent."""
        return isinstance(self.find(path), Absent)

    def package(self, name: str) -> str | None:
        """The version of an installed distribution, None where absent or unknown."""
        if not self._versions:
            self._versions[""] = ""  # read, even where it is empty
            table = self.peek_table("packages").items()
            self._versions.update({n: p.version for n, p in table if isinstance(p.version, str)})
        return self._versions.get(name)

    def table(self, path: str) -> Mapping[str, Any]:
        """A table by name, empty where it is absent; undecided where nobody read it."""
        found = self.known(path)
        return found if isinstance(found, dict) else {}

    def peek_table(self, path: str) -> Mapping[str, Any]:
        """As ``table``, but empty where it is unknown."""
        found = self.peek(path)
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class Pair:
    """The environment that is meant (left) and the one that is asked about (right)."""

    left: Env
    right: Env

    def differ(self, path: str) -> tuple[Any, Any] | None:
        """Both values (None for absent) where both are known and not equal."""
        one, other = self.left.known(path), self.right.known(path)
        return None if one == other else (one, other)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """What a rule found; the judge adds code, side, values and where each was read."""

    subject: str
    message: str
    hint: str = ""
    evidence: tuple[str, ...] = ()
    """Further paths that prove it, besides the subject."""
    sources: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()
    severity: Severity | None = None
    """Where it differs from the rule's own."""
    changes: tuple[Change, ...] = ()
    """Known behaviour changes between the two versions, reported one by one under it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    code: str
    severity: Severity
    title: str
    manual: str
    sources: tuple[str, ...] = field(default=())
    one: Callable[[Env], Iterable[Fault]] | None = None
    pair: Callable[[Pair], Iterable[Fault]] | None = None
    strict: Severity | None = None
    """Severity where the right side claims to be a rebuild of the left (``verify``)."""
    in_rebuild: bool = True
    """False for what says nothing about an image that is only looked into."""


def _manual(function: Callable[..., Any]) -> tuple[str, str]:
    text = inspect.cleandoc(function.__doc__ or "")
    title, _, rest = text.partition("\n")
    return title.strip(), rest.strip()


def check(
    code: str, severity: Severity, *, in_rebuild: bool = True
) -> Callable[[Callable[[Env], Iterable[Fault]]], Rule]:
    """A rule on one environment."""

    def register(function: Callable[[Env], Iterable[Fault]]) -> Rule:
        title, manual = _manual(function)
        return Rule(
            code=code,
            severity=severity,
            title=title,
            manual=manual,
            one=function,
            in_rebuild=in_rebuild,
        )

    return register


def difference(
    code: str, severity: Severity, *, strict: Severity | None = None
) -> Callable[[Callable[[Pair], Iterable[Fault]]], Rule]:
    """A rule on two environments."""

    def register(function: Callable[[Pair], Iterable[Fault]]) -> Rule:
        title, manual = _manual(function)
        return Rule(
            code=code, severity=severity, title=title, manual=manual, pair=function, strict=strict
        )

    return register


def page(code: str, severity: Severity, text: str) -> Rule:
    """A finding that the judge itself makes: only its manual stands here."""
    title, _, rest = inspect.cleandoc(text).partition("\n")
    return Rule(code=code, severity=severity, title=title.strip(), manual=rest.strip())
