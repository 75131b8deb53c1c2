"""Extension modules of all distributions: what they need from the system, what they were built for."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable

import observe_common
import observe_elf
import observe_libraries
import observe_packages

ABSENT, unknown = observe_common.ABSENT, observe_common.unknown

# Part of glibc, whose version stands in ``system.glibc``: they say nothing more.
_GLIBC = re.compile(
    r"^(?:ld-linux|ld64|ld-musl|lib(?:c|m|dl|pthread|rt|util|resolv|nsl|crypt|mvec)\.)"
)
# What builds of extensions put into their local version: ``cu122torch2.3cxx11abiFALSE``,
# ``pt23cu121``, ``cpu``.
_LOCAL_CUDA = re.compile(r"cu(\d+)(\d)(?!\d)")
_LOCAL_TORCH = re.compile(r"(?:torch(\d+\.\d+(?:\.\d+)?)|pt(\d)(\d+))(?![\d.])")
_LOCAL_ABI = re.compile(r"cxx11abi(true|false)")
_DIGITS = re.compile(r"[0-9]+")
_TORCH_PIN = re.compile(r"^torch *\(?== *(\d[\w.]*)")


class Extensions:
    """The dynamic sections of all shared libraries that RECORD files list."""

    def __init__(self, machine: observe_libraries.Machine) -> None:
        self.machine = machine
        self.provided = set()
        self.linked = set()  # names that some of them need
        self.elfs = []  # (distribution, Elf)
        self.builds = {}  # path without digits -> Elfs
        for dist in machine.packages.dists.values():
            for path in dist.libraries():
                self.provided.add(os.path.basename(path))
                elf = machine.search.elf(path)
                if elf is not None and elf.kind == machine.search.kind:
                    self.elfs.append((dist.name, elf))
                    self.linked.update(elf.needed)
                    self.builds.setdefault(_DIGITS.sub("", path), []).append(elf)
                    if elf.soname:
                        self.provided.add(elf.soname)

    def may_stay_unloaded(self, elf: observe_elf.Elf, missing: str) -> bool:
        """Whether nothing fails at import because a library cannot be loaded for want of another.

        A plug-in, such as a transport of NVSHMEM, has a versioned name, so it is no module, and
        nothing links to it. Of several builds of one file, such as torchaudio's for each release
        of FFmpeg, the first that can be loaded is taken.
        """
        name = os.path.basename(elf.path)
        plug_in = not name.endswith(".so") and self.linked.isdisjoint((name, elf.soname))
        others = self.builds.get(_DIGITS.sub("", elf.path), ())
        return plug_in or any(missing not in other.needed for other in others)


def system_sonames(extensions: Extensions) -> dict[str, object]:
    """Soname -> Soname for what extension modules need and no distribution brings."""
    machine, wanted = extensions.machine, {}
    for name, elf in extensions.elfs:
        for needed in elf.needed:
            if needed not in extensions.provided and not _GLIBC.match(needed):
                wanted.setdefault(needed, []).append((name, elf))
    table, paths = {}, {}
    for soname, users in sorted(wanted.items()):
        found = _resolve(soname, users, machine)
        if found and machine.path_class(*found) == "conda":
            continue  # inside the environment
        table[soname] = {"needed_by": sorted({name for name, _ in users})}
        if all(extensions.may_stay_unloaded(elf, soname) for _, elf in users):
            table[soname]["on_demand"] = True
        table[soname]["path_class"] = machine.path_class(*found) if found else ABSENT
        table[soname]["os_package"] = ABSENT
        if found:
            paths[soname] = found[0]
    owners = os_packages(paths.values())
    for soname, path in paths.items():
        table[soname]["os_package"] = owners[path]
    return table


def _resolve(
    soname: str, users: list[tuple[str, observe_elf.Elf]], machine: observe_libraries.Machine
) -> tuple[str, str] | None:
    """The first place in which any of its users finds it; most have no search path of their own."""
    tried = set()
    for _, elf in users:
        own = (tuple(elf.rpath), tuple(elf.runpath))
        if own not in tried:
            tried.add(own)
            found = machine.search.first(soname, (elf, *machine.chain()))
            if found:
                return found
    return None


def os_packages(paths: Iterable[str], info: str = "/var/lib/dpkg/info") -> dict[str, object]:
    """Path -> package of dpkg that owns it, absent, or unknown where dpkg is not the manager."""
    wanted = {}
    for path in paths:
        # With /lib a link to /usr/lib, the list may name either.
        other = path[4:] if path.startswith("/usr/lib") else "/usr" + path
        for form in (path, other):
            wanted[b"\n" + os.fsencode(form) + b"\n"] = path
    try:
        names = [name for name in os.listdir(info) if name.endswith(".list")]
    except OSError:
        why = unknown("no dpkg here; other package managers are not asked")
        return dict.fromkeys(wanted.values(), why)
    owners = dict.fromkeys(wanted.values(), ABSENT)
    names.sort(key=lambda name: not name.startswith(("lib", "zlib", "nvidia", "cuda")))
    for name in names:
        if not wanted:
            break
        listing = b"\n" + (observe_common.read_bytes(os.path.join(info, name), 8 << 20) or b"")
        for form in [form for form in wanted if form in listing]:
            owner = name[: -len(".list")].partition(":")[0]
            path = wanted.pop(form)
            owners[path] = owner
            for twin in [twin for twin, same in wanted.items() if same == path]:
                del wanted[twin]
    return owners


# --- what an extension of torch was built for -------------------------------------------------


def add_built_for(observed: dict[str, object], extensions: Extensions) -> None:
    """Put ``built_for`` into the entry of each distribution that links to torch."""
    linked = {}
    for name, elf in extensions.elfs:
        if name != "torch" and any(n.startswith(("libtorch", "libc10")) for n in elf.needed):
            linked.setdefault(name, []).append(elf)
    for name, elfs in linked.items():
        dist = extensions.machine.packages.dists[name]
        observed["packages"][name]["built_for"] = observe_common.guarded(_built_for, dist, elfs)


def _built_for(dist: observe_packages.Dist, elfs: list[observe_elf.Elf]) -> dict[str, object]:
    """From a note the build left, else from the version's local part, else from the ELF files."""
    silent = unknown("the build left no note of it")
    local = dist.version.partition("+")[2].lower()
    pin = next((m.group(1) for m in map(_TORCH_PIN.match, dist.requires) if m), silent)
    facts = {"torch": pin, "cuda": silent, "cxx11_abi": silent}
    found = _LOCAL_TORCH.search(local)
    if found:
        facts["torch"] = found.group(1) or "%s.%s" % found.groups()[1:]
    found = _LOCAL_CUDA.search(local)
    if found:
        facts["cuda"] = "%s.%s" % found.groups()
    elif local.startswith("cpu") or not any(_uses_cuda(elf) for elf in elfs):
        facts["cuda"] = ABSENT
    found = _LOCAL_ABI.search(local)
    facts["cxx11_abi"] = found.group(1) == "true" if found else _cxx11_abi(elfs)
    facts.update(_xformers_note(dist))
    return facts


def _uses_cuda(elf: observe_elf.Elf) -> bool:
    return any(name.startswith(("libtorch_cuda", "libc10_cuda", "libcuda")) for name in elf.needed)


def _cxx11_abi(elfs: list[observe_elf.Elf]) -> object:
    """Which of the two std::string types their symbols name, if only one."""
    names = b"".join(observe_elf.string_table(elf) for elf in elfs)
    new, old = b"__cxx1112basic_string" in names, re.search(rb"ERKSs|RKSsE|10ExceptionSs", names)
    return unknown("its symbols do not tell") if new == bool(old) else new


def _xformers_note(dist: observe_packages.Dist) -> dict[str, object]:
    note = next((path for path in dist.files if path.endswith("/cpp_lib.json")), None)
    text = note and observe_common.read_text(os.path.join(dist.site.folder, note))
    if not text:
        return {}
    version = json.loads(text)["version"]
    facts = {"torch": str(version["torch"])}
    if version.get("cuda"):  # 1201 for 12.1
        facts["cuda"] = "%d.%d" % divmod(int(version["cuda"]), 100)
    return facts
