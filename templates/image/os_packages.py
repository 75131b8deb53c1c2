"""Install the pinned distribution packages of ``os-packages.txt``, and leave nothing else behind."""

import os
import shutil
import subprocess

HERE = "/run/envlock"
CA_BUNDLE = "/run/secrets/ca_bundle"
LEFT_BEHIND = ("/var/lib/apt/lists", "/var/cache/apt", "/var/log", "/var/cache/debconf")


def main():
    with open(os.path.join(HERE, "os-packages.txt"), encoding="ascii") as file:
        pins = file.read().split()
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}
    options = ["-o", "Acquire::https::CaInfo=" + CA_BUNDLE] if os.path.exists(CA_BUNDLE) else []
    apt = ["apt-get", "-q", *options]
    subprocess.run([*apt, "update"], env=environment, check=True, stdin=subprocess.DEVNULL)
    command = [*apt, "install", "--yes", "--no-install-recommends", "--", *pins]
    subprocess.run(command, env=environment, check=True, stdin=subprocess.DEVNULL)
    for folder in LEFT_BEHIND:
        for entry in os.listdir(folder) if os.path.isdir(folder) else ():
            path = os.path.join(folder, entry)
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


main()
