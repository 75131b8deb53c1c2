"""Record what torch's own compiled allocator decides, on a machine without a GPU.

    python record.py CUDA_INCLUDE OUTPUT.json.gz RELEASE=FOLDER...

A folder holds ``torch/lib/libc10.so``, ``torch/lib/libc10_cuda.so`` and ``torch/include`` of that
release's Linux wheel. ``driver.c`` takes the place of the CUDA libraries; ``allocate.cpp`` asks
the allocator. The operations are made up here, from fixed seeds.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MIB = 1 << 20

SETTINGS = (
    "",
    "expandable_segments:True",
    "expandable_segments:True,max_split_size_mb:64",
    "max_split_size_mb:32",
    "max_non_split_rounding_mb:64,max_split_size_mb:32",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:1",
    "roundup_power2_divisions:[1:8,4:2,16:4,>:1]",
    "garbage_collection_threshold:0.4",
    "large_segment_size_mb:48",
    "per_process_memory_fraction:0.6",
    "throw_on_cudamalloc_oom:True",
)
CARDS = (0, 300 * MIB, 700 * MIB)
"""Bytes; 0 is a card that is never full."""


def make_operations(rng: random.Random, count: int, largest: int) -> list[list[int]]:
    """[id, bytes, stream] allocates, [id] frees, [] empties the cache."""
    streams = rng.choice([[0], [0], [0, 16]])
    common = [int(2 ** rng.uniform(0, largest)) for _ in range(rng.randint(3, 30))]
    operations: list[list[int]] = []
    alive: list[int] = []
    for number in range(count):
        dice = rng.random()
        if dice < 0.55 or not alive:
            size = rng.choice(common) if rng.random() < 0.7 else int(2 ** rng.uniform(0, largest))
            operations.append([number, size, rng.choice(streams)])
            alive.append(number)
        elif dice < 0.985:
            last = rng.random() < 0.3
            operations.append([alive.pop(-1 if last else rng.randrange(len(alive)))])
        elif dice < 0.99:
            operations.append([])
        else:
            rng.shuffle(alive)
            operations.extend([alive.pop()] for _ in range(len(alive) * 9 // 10))
    return operations


def build(folder: Path, include: Path, out: Path) -> None:
    """Compile the stand-in for the CUDA libraries and the program, for one release."""
    library = folder / "torch/lib/libc10_cuda.so"
    listing = subprocess.run(
        ["nm", "-D", "--undefined-only", library], check=True, capture_output=True, text=True
    ).stdout
    found = re.search(r"libcudart\.so\.[0-9.]+", listing)
    assert found
    name = found.group()
    written = set(re.findall(r"\b(cuda\w+)\(", (HERE / "driver.c").read_text()))
    missing = sorted(set(re.findall(r" (cuda\w+)", listing)) - written)
    rest = out / "rest.c"
    rest.write_text(
        "#include <stdlib.h>\n"
        + "".join(f"void {one}(void) {{ abort(); }}\n" for one in missing)
        # looked up by name when the driver is first used, and never called here
        + "".join(f"int {one}(void) {{ return 1; }}\n" for one in UNUSED_DRIVER)
    )
    (out / "map").write_text(f"{name} {{ global: *; }};\n")
    stand_in = ["gcc", "-shared", "-fPIC", "-O1", str(HERE / "driver.c"), str(rest)]
    stand_in += [f"-Wl,-soname,{name}", f"-Wl,--version-script={out / 'map'}", "-ldl"]
    subprocess.run([*stand_in, "-o", out / name], check=True)
    for other in ("libcuda.so.1", "libnvidia-ml.so.1"):
        (out / other).symlink_to(name)
    program = ["g++", "-w", "-std=c++20", "-O1", str(HERE / "allocate.cpp")]
    program += [f"-I{folder / 'torch/include'}", f"-I{include}"]
    program += [f"-L{folder / 'torch/lib'}", f"-L{out}", "-lc10", "-lc10_cuda", f"-l:{name}"]
    program += ["-Wl,--allow-shlib-undefined"]
    subprocess.run([*program, "-o", out / "allocate"], check=True)


UNUSED_DRIVER = (
    "cuMemExportToShareableHandle",
    "cuMemImportFromShareableHandle",
    "cuMemRetainAllocationHandle",
    "cuMemGetAllocationPropertiesFromHandle",
    "cuMemGetAddressRange",
    "cuMemsetD32Async",
    "cuStreamWriteValue32",
    "cuMulticastAddDevice",
    "cuMulticastBindMem",
    "cuMulticastCreate",
    "cuMulticastUnbind",
    "nvmlDeviceGetNvLinkRemoteDeviceType",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlSystemGetCudaDriverVersion_v2",
)


def perform(out: Path, folder: Path, case: dict[str, Any]) -> bool:
    """Run one case and keep what came out; False when the release does not know the settings."""
    lines = [f"t {case['card']}"] if case["card"] else []
    lines += [f"p {case['fraction']}"] if case["fraction"] is not None else []
    for operation in case["operations"]:
        kind = {0: "e", 1: "f", 3: "a"}[len(operation)]
        lines.append(" ".join([kind, *map(str, operation)]))
    environment = dict(os.environ, LD_LIBRARY_PATH=f"{out}:{folder / 'torch/lib'}")
    if case["settings"]:
        environment["PYTORCH_CUDA_ALLOC_CONF"] = case["settings"]
    if case["alternate"]:
        environment["STUB_ALTERNATE"] = "1"
    done = subprocess.run(
        [out / "allocate"],
        input="\n".join(lines) + "\n",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    rows = [line.split() for line in done.stdout.splitlines()]
    segments: dict[int, int] = {}
    places = []
    for kind, *numbers in rows:
        if kind in "SV":
            segments[int(numbers[0])] = len(segments)
        elif kind == "a":
            address = int(numbers[1])
            base = max(one for one in segments if one <= address)
            places.append([segments[base], address - base])
        elif kind == "o":
            places.append([])
        elif kind == "=":
            case["final"] = [int(number) for number in numbers]
    case["places"] = places
    if "final" not in case:
        case["final"] = []  # torch itself failed
        return bool(places)
    return True


def recorded(torch: str, folder: Path, out: Path) -> list[dict[str, Any]]:
    """Cases of one release: for each setting and card the first that reaches something."""
    wanted = [
        (settings, card, fraction)
        for settings in SETTINGS
        for card in CARDS
        for fraction in ((0.7, 1.0) if settings.startswith("garbage") and card else (None,))
    ]
    found = []
    for settings, card, fraction in wanted:
        for attempt in range(40):
            case = make_case(torch, settings, card, attempt)
            case["fraction"] = fraction
            if not perform(out, folder, case):
                break  # this release does not know the settings
            if not card or full(case) or attempt == 39:
                found.append(case)
                break
    # where age and address differ, and where a full card meets a large free block
    special = [make_case(torch, "", 0, attempt, alternate=True) for attempt in range(4)]
    special += [make_case(torch, SETTINGS[2], CARDS[1], attempt) for attempt in range(40, 46)]
    return found + [case for case in special if perform(out, folder, case)]


def make_case(
    torch: str, settings: str, card: int, attempt: int, *, alternate: bool = False
) -> dict[str, Any]:
    rng = random.Random(f"{settings} {card} {alternate} {attempt}")
    return {
        "torch": torch,
        "settings": settings,
        "card": card,
        "fraction": None,
        "alternate": alternate,
        "operations": make_operations(rng, 500 if alternate else 180, 24 + attempt % 4),
    }


def full(case: dict[str, Any]) -> bool:
    """Whether the card was full, and both outcomes of that were seen."""
    return bool(case["final"]) and case["final"][4] > case["final"][5] > 0


def main() -> int:
    include, output, *releases = sys.argv[1:]
    cases = []
    for release in releases:
        torch, _, folder = release.partition("=")
        with tempfile.TemporaryDirectory() as place:
            out = Path(place)
            build(Path(folder), Path(include), out)
            cases += recorded(torch, Path(folder), out)
    # the time in a gzip header would make every recording differ
    packed = gzip.compress(json.dumps({"cases": cases}, separators=(",", ":")).encode(), mtime=0)
    Path(output).write_bytes(packed)
    sys.stdout.write(f"{len(cases)} cases, {len(packed)} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
