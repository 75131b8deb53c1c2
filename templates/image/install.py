"""Install the lock into a tree of its own, one folder a layer, with fixed times.

Runs inside the first stage of the build, with the base's own Python and nothing else. It reads
``plan.json`` beside it. Nothing it prints or writes depends on the day or the machine.
"""

import csv
import json
import os
import shutil
import subprocess
import sys

HERE = "/run/envlock"
STAGE = "/stage"
CA_BUNDLE = "/run/secrets/ca_bundle"
EPOCH = 315532800  # 1980-01-01, the oldest time a wheel can hold
UNWANTED = ("direct_url.json", "REQUESTED", "uv_cache.json", "uv_build.json")


def main():
    with open(os.path.join(HERE, "plan.json"), encoding="utf-8") as file:
        plan = json.load(file)
    check_python(plan["python"])
    make_environment(plan["prefix"])
    install(plan["prefix"])
    site = os.path.join(plan["prefix"], "lib", "python%d.%d" % sys.version_info[:2], "site-packages")
    for dist_info in sorted(os.listdir(site)):
        if dist_info.endswith(".dist-info"):
            drop_traces(site, dist_info)
    split_layers(plan, site)
    fix_times()


def check_python(wanted):
    have = "%d.%d.%d" % sys.version_info[:3]
    if have != wanted:
        sys.exit("envlock: the base has Python %s, the lock needs %s" % (have, wanted))


def make_environment(prefix):
    """The three things that make a folder a virtual environment; no activate scripts, no pip."""
    home = os.path.dirname(os.path.realpath(sys.executable))
    name = "python%d.%d" % sys.version_info[:2]
    os.makedirs(os.path.join(prefix, "bin"))
    os.makedirs(os.path.join(prefix, "lib", name, "site-packages"))
    os.symlink(os.path.join(home, name), os.path.join(prefix, "bin", name))
    for alias in ("python", "python3"):
        os.symlink(name, os.path.join(prefix, "bin", alias))
    with open(os.path.join(prefix, "pyvenv.cfg"), "w", encoding="utf-8") as file:
        file.write("home = %s\ninclude-system-site-packages = false\n" % home)
        file.write("version = %d.%d.%d\n" % sys.version_info[:3])


def install(prefix):
    """By name, version and hash from the requirements file; no configuration of the base's."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
    if os.path.exists(CA_BUNDLE):
        environment["SSL_CERT_FILE"] = CA_BUNDLE
    command = [os.path.join(HERE, "uv"), "pip", "install", "--quiet", "--no-config", "--no-cache"]
    command += ["--no-python-downloads", "--python", os.path.join(prefix, "bin", "python")]
    command += ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--link-mode", "copy"]
    wheels = os.path.join(HERE, "wheels")
    if os.path.isdir(wheels):
        command += ["--offline", "--no-index", "--find-links", wheels]
    command += ["--requirements", os.path.join(HERE, "requirements.txt")]
    code = subprocess.call(command, env=environment, stdin=subprocess.DEVNULL)
    if code:
        sys.exit("envlock: uv could not install the locked packages (exit code %d)" % code)


def drop_traces(site, dist_info):
    """Remove what says how a package came here: it differs between ways of building."""
    folder = os.path.join(site, dist_info)
    record = os.path.join(folder, "RECORD")
    gone = {dist_info + "/" + name for name in UNWANTED}
    for name in UNWANTED:
        if os.path.exists(os.path.join(folder, name)):
            os.remove(os.path.join(folder, name))
    with open(record, newline="", encoding="utf-8") as file:
        rows = [row for row in csv.reader(file) if row and row[0] not in gone]
    with open(record, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(sorted(rows))


def split_layers(plan, site):
    """Move each distribution's files below /stage/<layer>; what is left is the last layer's."""
    for layer in plan["layers"][:-1]:
        for dist_info in dist_infos(site, layer["packages"]):
            with open(os.path.join(site, dist_info, "RECORD"), newline="", encoding="utf-8") as file:
                paths = [row[0] for row in csv.reader(file) if row]
            for path in paths:
                move(os.path.normpath(os.path.join(site, path)), layer["name"])
    last = os.path.join(STAGE, plan["layers"][-1]["name"])
    os.makedirs(last, exist_ok=True)
    remove_empty(plan["prefix"])
    shutil.move(plan["prefix"], last + plan["prefix"])
    target = last + plan["lock_path"]
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copyfile(os.path.join(HERE, "embedded.toml"), target)


def dist_infos(site, names):
    found = []
    for entry in sorted(os.listdir(site)):
        if entry.endswith(".dist-info"):
            name = entry[: -len(".dist-info")].rpartition("-")[0]
            if name.lower().replace("_", "-").replace(".", "-") in names:
                found.append(entry)
    return found


def move(path, layer):
    target = STAGE + "/" + layer + path
    if os.path.lexists(path):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(path, target)


def remove_empty(folder):
    for path, _, _ in os.walk(folder, topdown=False):
        if not os.listdir(path):
            os.rmdir(path)


def fix_times():
    for folder, names, files in os.walk(STAGE, topdown=False):
        for name in files + names:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                os.chmod(path, 0o755 if os.path.isdir(path) or os.access(path, os.X_OK) else 0o644)
            os.utime(path, (EPOCH, EPOCH), follow_symlinks=False)
    os.utime(STAGE, (EPOCH, EPOCH))


main()
