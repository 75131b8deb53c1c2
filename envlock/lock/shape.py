"""Models with declared fields, and the strict reading of outside data into them.

A small part of what a validation library does, because every command waits for it: pydantic with
the classes of an observation takes 190 ms to load where this takes 10 (docs/design.md). What is
read is strict and closed: no conversion, no unknown keys, every fault with its spot.
"""

from __future__ import annotations

import functools
import math
import re
import types
from collections.abc import Callable, Mapping
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

if TYPE_CHECKING:
    from typing_extensions import Self, dataclass_transform
else:

    def dataclass_transform(**_: object) -> Callable[[type], type]:
        return lambda cls: cls


T = TypeVar("T")
Read = Callable[[Any], Any]
"""Outside data -> the value; raises ShapeError."""


class ShapeError(Exception):
    """Data that is not of the declared shape."""

    def __init__(self, what: str, value: object) -> None:
        super().__init__(what)
        self.what = what
        self.value = value
        self.path: list[str | int] = []
        """Keys and indexes from the outside to the fault."""


# --- bounds of a field, given with Annotated ---------------------------------------------------


class Length(NamedTuple):
    """Characters of a text, or entries of a list."""

    most: int
    least: int = 0


class Matches(NamedTuple):
    pattern: str


class Within(NamedTuple):
    """``lowest <= number < end``."""

    lowest: float
    end: float = math.inf


# --- models -----------------------------------------------------------------------------------

_REQUIRED = object()


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Model:
    """Frozen, made by keyword, equal by value. A field ``schema_`` stands as ``schema`` in data."""

    defaults: ClassVar[Mapping[str, Any]] = {}
    """Field -> its default, in order; a marker where it must be given."""

    def __init_subclass__(cls) -> None:
        own = {name: cls.__dict__.get(name, _REQUIRED) for name in cls.__annotations__}
        cls.defaults = {**cls.defaults, **own}

    def __init__(self, **values: Any) -> None:
        fields = self.__dict__
        for name, default in self.defaults.items():
            if name in values:
                fields[name] = values.pop(name)
            elif default is _REQUIRED:
                raise TypeError(f"{type(self).__name__}: {name} is missing")
            else:
                fields[name] = default.copy() if type(default) in (list, dict) else default
        if values:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(values)}")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={value!r}"
            for name, value in self.__dict__.items()
            if value != self.defaults[name]
        )
        return f"{type(self).__name__}({shown})"

    @classmethod
    def read(cls, data: object) -> Self:
        """``data`` as parsed from JSON or TOML. Raises ShapeError."""
        hint: Any = cls
        value: Self = _reader(hint)(data)
        return value

    def plain(self) -> dict[str, Any]:
        """As data again, fields at their default left out."""
        return {
            name.rstrip("_"): _plain(value)
            for name, value in self.__dict__.items()
            if value != self.defaults[name]
        }

    def changed(self, **values: Any) -> Self:
        """The same with other values."""
        return type(self)(**{**self.__dict__, **values})


def _plain(value: Any) -> Any:
    if isinstance(value, Model):
        return value.plain()
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return value


# --- facts ------------------------------------------------------------------------------------


class Absent(Model):
    """Looked for, and not there."""

    absent: Literal[True]


class Unknown(Model):
    """Could not be read, or the text does not say."""

    unknown: Annotated[str, Length(400)]


ABSENT = Absent(absent=True)
NOT_RECORDED = Unknown(unknown="not recorded")

Fact = Union[T, Absent, Unknown]  # noqa: UP007 - the operator knows no type variables


# --- readers ----------------------------------------------------------------------------------


@functools.cache
def _reader(hint: Any) -> Read:  # noqa: PLR0911 - one line for each form of a hint
    if hint is Any:
        return lambda data: data
    if isinstance(hint, type) and issubclass(hint, Model):
        return _model(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _bounded(arguments[0], arguments[1:])
    if origin is Literal:
        return _literal(arguments)
    if origin is list:
        return _list(arguments[0])
    if origin is dict:
        return _table(*arguments)
    if origin in (Union, types.UnionType):
        return _union(arguments)
    raise TypeError(f"no reader for {hint}")


def _model(model: type[Model]) -> Read:
    @functools.cache
    def fields() -> dict[str, tuple[str, Read]]:  # late: most models of a file are never read
        hints = get_type_hints(model, include_extras=True)
        return {name.rstrip("_"): (name, _reader(hints[name])) for name in model.defaults}

    needed = frozenset(
        name.rstrip("_") for name, default in model.defaults.items() if default is _REQUIRED
    )

    def read(data: Any) -> Model:
        if not isinstance(data, dict):
            raise ShapeError("a table is needed", data)
        if not needed <= data.keys():
            raise ShapeError(f"{min(needed - data.keys())} is missing", data)
        known, values = fields(), {}
        for key in data:
            if key not in known:
                raise _at(key, ShapeError("unknown key", data[key]))
        for key, (name, read_entry) in known.items():
            if key in data:
                try:
                    values[name] = read_entry(data[key])
                except ShapeError as error:
                    raise _at(key, error) from None
        return model(**values)

    return read


def _list(hint: Any) -> Read:
    read_entry = _reader(hint)

    def read(data: Any) -> list[Any]:
        if not isinstance(data, list):
            raise ShapeError("a list is needed", data)
        values = []
        for index, entry in enumerate(data):
            try:
                values.append(read_entry(entry))
            except ShapeError as error:
                raise _at(index, error) from None
        return values

    return read


def _table(key_hint: Any, hint: Any) -> Read:
    read_key, read_entry = _reader(key_hint), _reader(hint)

    def read(data: Any) -> dict[Any, Any]:
        if not isinstance(data, dict):
            raise ShapeError("a table is needed", data)
        values = {}
        for key, entry in data.items():
            try:
                values[read_key(key)] = read_entry(entry)
            except ShapeError as error:
                raise _at(key, error) from None
        return values

    return read


def _literal(allowed: tuple[Any, ...]) -> Read:
    kinds = {type(value) for value in allowed}

    def read(data: Any) -> Any:
        if type(data) not in kinds or data not in allowed:
            raise ShapeError(f"must be {' or '.join(map(repr, allowed))}", data)
        return data

    return read


def _union(members: tuple[Any, ...]) -> Read:
    """A fact, an optional value, or models that ``status`` tells apart."""
    rest = [member for member in members if member not in (Absent, Unknown, type(None))]
    read_value = _reader(rest[0]) if len(rest) == 1 else _by_status(rest)
    may_be_none = type(None) in members
    if Absent not in members:
        return lambda data: None if data is None and may_be_none else read_value(data)

    def read(data: Any) -> Any:
        if isinstance(data, dict) and len(data) == 1:
            if "unknown" in data:
                reason = _reader(Unknown)(data)
                return NOT_RECORDED if reason == NOT_RECORDED else reason
            if "absent" in data:
                _reader(Absent)(data)
                return ABSENT
        return data if isinstance(data, Absent | Unknown) else read_value(data)

    return read


def _by_status(models: list[type[Model]]) -> Read:
    by_status: dict[Any, Read] = {}
    model: Any
    for model in models:
        (status,) = get_args(get_type_hints(model)["status"])
        by_status[status] = _reader(model)

    def read(data: Any) -> Any:
        status = data.get("status") if isinstance(data, dict) else None
        if not isinstance(status, str) or status not in by_status:
            raise ShapeError(f"status must be {' or '.join(map(repr, by_status))}", data)
        return by_status[status](data)

    return read


def _bounded(hint: Any, bounds: tuple[Any, ...]) -> Read:
    read_value = _reader(hint)
    checks = [_CHECKS[type(bound)](bound) for bound in bounds]

    def read(data: Any) -> Any:
        value = read_value(data)
        for check in checks:
            if fault := check(value):
                raise ShapeError(fault, data)
        return value

    return read


def _check_length(bound: Length) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        if bound.least <= len(value) <= bound.most:
            return None
        unit = _UNIT[type(value)]
        if len(value) < bound.least:
            return f"too short ({len(value)} {unit}; at least {bound.least})"
        return f"too long ({len(value)} {unit}; at most {bound.most})"

    return check


def _check_pattern(bound: Matches) -> Callable[[Any], str | None]:
    matches = re.compile(bound.pattern).fullmatch
    return lambda value: None if matches(value) else f"must be of the form {bound.pattern}"


def _check_range(bound: Within) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        if bound.lowest <= value < bound.end:
            return None
        return f"must be from {bound.lowest} to below {bound.end}"

    return check


_CHECKS: dict[Any, Callable[[Any], Callable[[Any], str | None]]] = {
    Length: _check_length,
    Matches: _check_pattern,
    Within: _check_range,
}
_UNIT: dict[Any, str] = {str: "characters", list: "entries"}


def _str(data: Any) -> str:
    if not isinstance(data, str):
        raise ShapeError("a text is needed", data)
    if not data.isascii():
        try:
            data.encode("utf-8")
        except UnicodeEncodeError:
            raise ShapeError("not UTF-8 (a lone surrogate)", data) from None
    return data


def _int(data: Any) -> int:
    if not isinstance(data, int) or isinstance(data, bool):
        raise ShapeError("a whole number is needed", data)
    return data


def _float(data: Any) -> float:
    if not isinstance(data, int | float) or isinstance(data, bool) or not math.isfinite(data):
        raise ShapeError("a finite number is needed", data)
    return float(data)


def _bool(data: Any) -> bool:
    if not isinstance(data, bool):
        raise ShapeError("true or false is needed", data)
    return data


_PLAIN: dict[Any, Read] = {str: _str, int: _int, float: _float, bool: _bool}


def _at(key: str | int, error: ShapeError) -> ShapeError:
    error.path.insert(0, key)
    return error
