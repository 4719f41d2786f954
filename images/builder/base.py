"""Makes a base image from the distribution's packages, where no registry can be pulled from.

Enters: this machine's mirror of Debian. Leaves: a tar of a minimal root folder with Python, kept for further builds.
Needs root, as every debootstrap does. Nothing of the machine stays in it: its sources are Debian's own, and logs,
caches, manuals and the identity of the machine are gone.
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
"""Folders that stay, without what is in them."""

REMOVED: Final = ("debootstrap", "etc/hostname", "etc/machine-id", "etc/resolv.conf")

RECIPE: Final = "1"
"""Changed by hand whenever this module makes another base of the same packages."""


def recipe() -> str:
    """What the base follows from."""
    return "\n".join((RECIPE, SUITE, *PACKAGES, SOURCES, *EMPTIED, *REMOVED))


def mirror(source_texts: Iterable[str]) -> str:
    """The first source of Debian's main archive for the suite that apt is told of here, else the public one."""
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
    """Write the tar. Takes about half a minute; `BuildError` without root or debootstrap, or when that fails."""
    if os.geteuid() != 0:
        raise BuildError("--base debian needs root, as debootstrap does: run it as root, or name another --base.")
    if shutil.which("debootstrap") is None:
        raise BuildError("--base debian needs debootstrap: apt-get install debootstrap, or let --install do that.")
    room = tar.with_name("base-root")
    shutil.rmtree(room, ignore_errors=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(room)]
    with log.open("wb") as file:
        made = subprocess.run([*command, mirror(source_texts)], stdout=file, stderr=subprocess.STDOUT, check=False)
    if made.returncode:
        raise BuildError(f"debootstrap failed: see its log {log}.")
    clean(room)
    part = tar.with_suffix(".part")
    subprocess.run(["tar", "--numeric-owner", "--one-file-system", "-cf", part, "-C", room, "."], check=True)
    part.rename(tar)
    shutil.rmtree(room)


def clean(room: Path) -> None:
    """Take away what is of this machine, and what no container needs."""
    for name in REMOVED:
        path = room / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for name in EMPTIED:
        if os.path.ismount(room / name):
            raise BuildError(f"{room / name} is still mounted after debootstrap: unmount it and try again.")
        for entry in sorted((room / name).iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
    (room / "etc/apt/sources.list").write_text(SOURCES, encoding="ascii")
