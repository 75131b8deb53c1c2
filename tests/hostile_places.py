"""Where each ``field`` of the hostile inputs lands in envlock: as whole documents to be read.

A value that our lock has no field for lands twice: as a key, which must be refused as unknown, and
as free text of the observation, which must be made harmless.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import tomli_w
import tomllib
from packaging.utils import canonicalize_name

from envlock.errors import InputError
from envlock.lock.digest import lock_id
from envlock.lock.io import parse_lock, render_lock
from envlock.lock.observation import OBSERVATION_SCHEMA
from tests.hostile_inputs import Input
from tests.hostile_sample import Sample
from tests.hostile_texts import text_samples, text_sentences
from tests.unit.locks import lock

Tree = dict[str, Any]

GOOD = render_lock(lock()).encode()
_PLAIN = re.compile(r"[A-Za-z0-9._+!-]{1,60}", re.ASCII)
_DIGEST = "sha256:" + "0" * 64


def samples_of(item: Input) -> list[Sample] | None:
    """None: the field is not mapped."""
    place = next((make for pattern, make in _PLACES if re.fullmatch(pattern, item.field)), None)
    if place is None or (item.sentence is not None and item.field not in _SENTENCES):
        return None
    if item.sentence is not None:
        return list(_SENTENCES[item.field](item)) or None
    found = [sample for value in item.values for sample in place(item, value)]
    if item.twin is not None:
        calm = replace(item, action="neutralise", words=(), other_fields={})
        found += [replace(s, label=f"twin {s.label}") for s in place(calm, item.twin)]
    return found


def _tree() -> Tree:
    return tomllib.loads(GOOD.decode())


def _sealed(tree: Tree) -> bytes:
    """As TOML, with the id that fits: an edited lock would be refused for that alone."""
    data = tomli_w.dumps(tree).encode("utf-8", "surrogatepass")
    try:
        read = parse_lock(data, "sealing")
    except InputError:
        return data
    table = read.table.changed(id=lock_id(read.observed, read.table.image.env))
    return render_lock(replace(read, table=table)).encode()


def _lock_sample(item: Input, tree: Tree, value: object, label: str = "lock") -> Sample:
    said = () if item.refused else tuple(item.words)
    words = tuple(item.words) if item.refused else ()
    return Sample(
        label=label, data=_sealed(tree), refused=item.refused, words=words, said=said, value=value
    )


def _by_setter(setter: Callable[[Tree, Any], None]) -> Callable[[Input, Any], Iterator[Sample]]:
    def place(item: Input, value: Any) -> Iterator[Sample]:
        tree = _tree()
        for field, other in item.other_fields.items():
            _SETTERS[field](tree, other)
        setter(tree, value)
        yield _lock_sample(item, tree, value)

    return place


def _set_name(tree: Tree, value: Any) -> None:
    entry, seen = tree["packages"][0], tree["tool"]["envlock"]["observed"]["packages"]
    facts = seen.pop(entry["name"])
    entry["name"] = value
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        entry["name"] = canonicalize_name(value)  # as PEP 751 wants it written
        seen[entry["name"]] = facts
        file = f"{canonicalize_name(value).replace('-', '_')}-{entry['version']}-py3-none-any.whl"
        entry["wheels"][0]["url"] = f"https://files.example/{file}"


def _set_version(tree: Tree, value: Any) -> None:
    if isinstance(value, str) and value.startswith("version = "):  # a line of TOML
        value = tomllib.loads(value)["version"]
    entry = tree["packages"][0]
    entry["version"] = value
    tree["tool"]["envlock"]["observed"]["packages"][entry["name"]]["version"] = value
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        file = f"{entry['name']}-{value}-py3-none-any.whl"
        entry["wheels"][0]["url"] = f"https://files.example/{file}"


def _set_marker(tree: Tree, value: Any) -> None:
    tree["packages"][0]["marker"] = value


def _set_url(tree: Tree, value: Any) -> None:
    tree["packages"][0]["wheels"][0]["url"] = value


def _set_hashes(tree: Tree, value: Any) -> None:
    pairs = (text.partition(":") for text in ([value] if isinstance(value, str) else value))
    tree["packages"][0]["wheels"][0]["hashes"] = {kind: digest for kind, _, digest in pairs}


def _set_vcs(key: str) -> Callable[[Tree, Any], None]:
    def setter(tree: Tree, value: Any) -> None:
        entry = tree["packages"][0]
        entry.pop("wheels", None)
        plain = {"type": "git", "url": "https://host.example/r.git", "commit-id": "0" * 40}
        entry.setdefault("vcs", plain)[key] = value

    return setter


def _set_path(tree: Tree, value: Any) -> None:
    wheel = tree["packages"][0]["wheels"][0]
    wheel.pop("url")
    wheel["path"] = value


def _set_schema(tree: Tree, value: Any) -> None:
    tree["tool"]["envlock"]["schema"] = value["schema"] if isinstance(value, dict) else value


def _set_env(tree: Tree, pairs: Mapping[str, Any]) -> None:
    tree["tool"]["envlock"]["image"] = {"env": dict(pairs)}


_SETTERS: dict[str, Callable[[Tree, Any], None]] = {
    "packages[].name": _set_name,
    "packages[].version": _set_version,
    "packages[].marker": _set_marker,
    "packages[].url": _set_url,
    "packages[].hashes": _set_hashes,
    "packages[].vcs.url": _set_vcs("url"),
    "packages[].vcs.ref": _set_vcs("commit-id"),
    "packages[].vcs.subdirectory": _set_vcs("subdirectory"),
    "schema": _set_schema,
    "env (name)": _set_env,
}


def _env(item: Input, value: Any) -> Iterator[Sample]:
    tree = _tree()
    _set_env(tree, {item.field.partition(".")[2]: value})
    yield _lock_sample(item, tree, value)


def _packages(item: Input, value: Any) -> Iterator[Sample]:
    tree = _tree()
    wheels = tree["packages"][0]["wheels"]
    tree["packages"] = [
        {**entry, "wheels": wheels} if "wheels" not in entry else entry for entry in value
    ]
    if len(tree["packages"]) > 50_000:  # tomli_w would take minutes
        lines = "".join(
            f"[[packages]]\nname = {json.dumps(e['name'])}\nversion = {json.dumps(e['version'])}\n"
            for e in value
        )
        head, _, rest = GOOD.decode().partition("[[packages]]")
        yield Sample(
            label="lock",
            data=f"{head}{lines}[tool{rest.partition('[tool')[2]}".encode(),
            refused=True,
            words=tuple(item.words),
        )
        return
    yield _lock_sample(item, tree, value)


def _files(item: Input, value: Any) -> Iterator[Sample]:
    if not item.refused:  # names that a lock only lists: files of an environment that were altered
        yield from _facts(item, value)
        return
    tree = _tree()
    _set_path(tree, value)
    yield _lock_sample(item, tree, value)


def _base(item: Input, value: Any) -> Iterator[Sample]:
    name, at, digest = value.partition("@")
    tree = _tree()
    bad_digest = bool(at) and not re.fullmatch(r"sha256:[0-9a-f]{64}", digest)
    tree["tool"]["envlock"]["image"] = {
        "base": {
            "reference": value if bad_digest else name,
            "digest": _DIGEST if bad_digest or not at else digest,
            "layers": [],
        }
    }
    if item.action == "warn":
        yield replace(_lock_sample(item, _tree(), value, "--base"), base=value)
        return
    yield _lock_sample(item, tree, value, "recorded base")
    yield replace(_lock_sample(item, _tree(), value, "--base"), base=value, data=GOOD)


def _key(name: str) -> Callable[[Input, Any], Iterator[Sample]]:
    def place(item: Input, value: Any) -> Iterator[Sample]:
        tree = _tree()
        tree["tool"]["envlock"][name] = value
        words = tuple(item.words) if item.refused else ()
        yield Sample(
            label="as a key",
            data=_sealed(tree),
            refused=True,
            words=(*words, "unknown key", name),
            value=value,
        )
        yield from _facts(replace(item, action="neutralise", words=()), value)

    return place


def _labels(item: Input, value: Any) -> Iterator[Sample]:
    if isinstance(value, dict):
        yield from _key("labels")(item, value)
    else:
        yield from _key("labels")(item, {item.field.partition(".")[2]: value})


def _facts(item: Input, value: Any) -> Iterator[Sample]:
    """Free text, in every fact that holds it, in the lock and as an observation."""
    tree = _tree()
    observed = tree["tool"]["envlock"]["observed"]
    if isinstance(value, bytes):  # as the probe decodes what is not UTF-8
        value = value.decode("utf-8", "replace")
    text = value if isinstance(value, str) else json.dumps(value)
    observed["gpus"] = [{"name": text, "compute_capability": "8.0"}]
    observed["system"] = {**observed.get("system", {}), "distribution": text, "cpu": text}
    encodable = not re.search("[\ud800-\udfff]", text)
    if len(text) < 2048 and encodable:
        observed["broken"] = [{"folder": text, "reason": text}]
        observed["unmet"] = [{"distribution": "numpy", "requirement": text, "installed": text}]
        observed["contested"] = {text: ["numpy", "torch"]}
        observed["files"] = {"checked": 3, "altered": {text: "numpy"}, "missing": {}}
    # TOML cannot name a code point that is none: the bytes are refused before there is a field.
    sample = _lock_sample(item, tree, value, "facts in a lock")
    yield sample if encodable else replace(sample, words=("UTF-8",))
    facts = {"schema": OBSERVATION_SCHEMA, **copy.deepcopy(observed)}
    yield replace(
        sample,
        label="facts as JSON",
        form="facts",
        data=json.dumps(facts, ensure_ascii=True).encode(),
    )


def _extras(item: Input, value: Any) -> Iterator[Sample]:
    yield from _facts(item, value)


def _document(item: Input, value: Any) -> Iterator[Sample]:
    if isinstance(value, dict) and not item.refused:
        # Names that could be taken for methods: wherever names are free, and as keys.
        yield from _names(item, value)
        refused = replace(item, action="reject", words=("unknown key",))
        yield from _merged(refused, value)
    elif isinstance(value, dict):
        yield from _merged(item, value)
    else:
        data = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
        yield Sample(
            label="whole", data=data, refused=item.refused, words=tuple(item.words), value=value
        )


def _merged(item: Input, value: Mapping[str, Any]) -> Iterator[Sample]:
    for label, place in (("at the top", ()), ("in the table", ("tool", "envlock"))):
        tree = _tree()
        node = tree
        for key in place:
            node = node[key]
        node.update(value)
        yield _lock_sample(item, tree, value, label)


def _names(item: Input, value: Mapping[str, Any]) -> Iterator[Sample]:
    tree = _tree()
    table = tree["tool"]["envlock"]
    table["sources"] = dict.fromkeys(value, "files.example")
    for name in value:
        table["observed"]["packages"][name] = {"version": "1"}
    table["observed"]["env"] = dict.fromkeys(value, "x")
    yield _lock_sample(item, tree, value, "as names")


def _document_sentences(item: Input) -> Iterator[Sample]:
    words = tuple(item.words)
    text = item.sentence or ""
    made: dict[str, bytes] = {}
    for encoding in re.findall(r"utf-8-sig|utf-16|utf-32|latin-1", text):
        body = GOOD.decode().replace("files.example", "files.example/\u00e9")
        made[encoding] = body.encode(encoding)
    if match := re.search(r"(\d+) NUL bytes", text):
        made["NUL bytes"] = GOOD + b"\0" * int(match[1])
    if match := re.search(r"range\(0, len\(good\), (\d+)\)", text):
        for length in range(0, len(GOOD), int(match[1])):
            made[f"cut at {length}"] = GOOD[:length]
    for label, data in made.items():
        # A cut inside a value is refused as bad TOML, whose hint speaks of a cut file.
        cut = label.startswith("cut")
        yield Sample(label=label, data=data, refused=True, words=() if cut else words)


_FREE = r"gpu\.devices\[0\]\.name.*|os\.release\..*|any string|notes|host description"
_PLACES: tuple[tuple[str, Callable[[Input, Any], Iterator[Sample]]], ...] = (
    *((re.escape(field), _by_setter(setter)) for field, setter in _SETTERS.items()),
    (r"packages\[\]\.extras", _extras),
    (r"packages\[\]", _packages),
    (r"env\.\w+", _env),
    (r"files\[\]\.path", _files),
    (r"image\.base", _base),
    (r"labels(?:\.\S+| \(name\))", _labels),
    (r"title\b.*", _key("title")),
    (r"command\b.*", _key("command")),
    (_FREE, _facts),
    (r"<document>", _document),
    (r"collect_env text", text_samples),
)
_SENTENCES: dict[str, Callable[[Input], Iterator[Sample]]] = {
    "<document>": _document_sentences,
    "collect_env text": text_sentences,
}
