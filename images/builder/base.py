"""Creates a base image from Debian packages, for machines without access to a registry.

The result is a tar of a minimal root file system with Python, which later builds reuse. The packages come from the
mirror that this machine uses. debootstrap needs root. The image contains nothing of this machine: its package sources
are Debian's public ones, and logs, caches, manuals and the machine id are removed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from images.builder.errors import BuildError

SUITE: Final = "bookworm"
PACKAGES: Final = ("python3", "python3-venv", "ca-certificates")
PUBLIC_MIRROR: Final = "http://deb.debian.org/debian"

SOURCES: Final = f"""\
deb {PUBLIC_MIRROR} {SUITE} main
deb {PUBLIC_MIRROR} {SUITE}-updates main
deb http://deb.debian.org/debian-security {SUITE}-security main
"""

EMPTIED: Final = (
    "dev", "proc", "run", "sys", "tmp", "var/log", "var/cache", "var/lib/apt/lists", "var/tmp",
    "usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian", "root",
)  # fmt: skip
"""Folders whose content is removed."""

REMOVED: Final = ("debootstrap", "etc/hostname", "etc/machine-id", "etc/resolv.conf")

RECIPE: Final = "1"
"""Increase it if a change of this module changes the image, but none of the constants above."""


def recipe() -> str:
    """Return everything that determines the image, as text."""
    return "\n".join((RECIPE, SUITE, *PACKAGES, SOURCES, *EMPTIED, *REMOVED))


def mirror(source_texts: Iterable[str]) -> str:
    """Return the first mirror of the suite in apt's source files, or Debian's public mirror."""
    for text in source_texts:
        for line in text.splitlines():
            found = re.match(rf"deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+{SUITE}\s", line)
            if found:
                return found.group(1)
        for paragraph in re.split(r"\n\s*\n", text):
            fields = dict(re.findall(r"^([A-Za-z-]+):[ \t]*(.*)$", paragraph, re.MULTILINE))
            if SUITE in fields.get("Suites", "").split() and fields.get("URIs"):
                return str(fields["URIs"]).split()[0]
    return PUBLIC_MIRROR


def make_base(tar: Path, source_texts: Iterable[str], log: Path) -> None:
    """Write the tar, which takes about half a minute. Raises `BuildError` without root or debootstrap, or if it
    fails."""
    if os.geteuid() != 0:
        raise BuildError("--base debian needs root for debootstrap: run it as root, or set another --base.")
    if shutil.which("debootstrap") is None:
        raise BuildError("--base debian needs debootstrap: run `apt-get install debootstrap`, or use --install.")
    root = tar.with_name("base-root")
    shutil.rmtree(root, ignore_errors=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(root)]
    with log.open("wb") as file:
        made = subprocess.run([*command, mirror(source_texts)], stdout=file, stderr=subprocess.STDOUT, check=False)
    if made.returncode:
        raise BuildError(f"debootstrap failed: see its log {log}.")
    clean(root)
    part = tar.with_suffix(".part")
    subprocess.run(["tar", "--numeric-owner", "--one-file-system", "-cf", part, "-C", root, "."], check=True)
    part.rename(tar)
    shutil.rmtree(root)


def clean(root: Path) -> None:
    """Remove the data of this machine, and files that containers do not need."""
    for name in REMOVED:
        path = root / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for name in EMPTIED:
        if os.path.ismount(root / name):
            raise BuildError(f"{root / name} is still mounted after debootstrap: unmount it and try again.")
        for entry in sorted((root / name).iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
    (root / "etc/apt/sources.list").write_text(SOURCES, encoding="ascii")
