"""How this machine reaches its package sources, as a build secret: a mirror, a proxy, a certificate of its own.

Enters: the settings of pip and apt on this machine. Leaves: one small archive that `with-machine` unpacks into memory
while a RUN lasts, so that no layer has it. Every file in it carries a mark, by which `leaks` would find it in an image.
What is handed in is a choice of settings, not the files as they are: apt's hooks, local folders and the like would mean
nothing elsewhere.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.builder.errors import BuildError

ROOM: Final = "/run/machine"
"""Where the archive is unpacked in a build."""

PIP_SETTINGS: Final = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "default-timeout", "retries")
"""Settings of pip that a build takes over; `cert` besides, whose file is handed in."""

_PROXIES: Final = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_CERTIFICATE_VARIABLES: Final = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
_PIP_LINE: Final = re.compile(r"(?P<section>[^.]+)\.(?P<key>[a-z-]+)=(?P<value>'.*'|\".*\")")
_APT_KEPT: Final = re.compile(r"Acquire::(?!IndexTargets|Languages|GzipIndexes|CompressionTypes|Changelogs)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What this machine has set."""

    pip: Mapping[str, str]
    apt: tuple[str, ...]
    """Lines of apt's configuration."""
    sources: Mapping[str, bytes]
    """Files of /etc/apt that name package sources, by their name below it, with the keys and passwords of those."""
    environment: Mapping[str, str]
    codename: str
    """Of the Debian release that these package sources are for; empty when it is none."""
    certificates: bytes
    """The certificates that this machine trusts; empty when it trusts only the usual ones."""


def pip_settings(listed: str) -> dict[str, str]:
    """The settings that `pip config list` tells, one value each: the environment wins over files."""
    found: dict[str, tuple[int, str]] = {}
    ranks = {"global": 0, "install": 1, ":env:": 2}
    for line in listed.splitlines():
        match = _PIP_LINE.fullmatch(line.strip())
        if match is None or match["section"] not in ranks:
            continue
        rank, value = ranks[match["section"]], match["value"][1:-1].replace("\\n", " ")
        if rank >= found.get(match["key"], (-1, ""))[0]:
            found[match["key"]] = (rank, value)
    return {key: value for key, (_, value) in found.items() if key in (*PIP_SETTINGS, "cert")}


def apt_settings(dumped: str) -> tuple[str, ...]:
    """The lines of `apt-config dump` that say how to reach package sources: proxies, time-outs, certificates."""
    return tuple(line for line in dumped.splitlines() if _APT_KEPT.match(line) and not line.endswith('"";'))


def codename(os_release: str) -> str:
    """VERSION_CODENAME of /etc/os-release."""
    match = re.search(r"^VERSION_CODENAME=\"?([a-z]+)", os_release, re.MULTILINE)
    return match.group(1) if match else ""


def secret_files(machine: Machine, mark: str) -> dict[str, bytes]:
    """The files of the archive, each with the mark in it."""
    comment = f"# {mark}\n"
    environment = {"MACHINE_CODENAME": machine.codename, **machine.environment}
    environment |= {"PIP_CONFIG_FILE": f"{ROOM}/pip.conf", "APT_CONFIG": f"{ROOM}/apt.conf"}
    pip = {key: value for key, value in machine.pip.items() if key != "cert"}
    apt = list(machine.apt)
    files: dict[str, bytes] = {}
    if machine.certificates:
        path = f"{ROOM}/certificates.pem"
        files["certificates.pem"] = comment.encode() + machine.certificates
        pip["cert"] = path
        environment["SSL_CERT_FILE"] = path
        apt.append(f'Acquire::https::CAInfo "{path}";')
    if machine.sources:
        apt.append(f'Dir::Etc "{ROOM}/apt";')
        files |= {f"apt/{name}": data for name, data in machine.sources.items()}
    settings = "".join(f"{key} = {value}\n" for key, value in sorted(pip.items()))
    files["pip.conf"] = f"{comment}[global]\n{settings}".encode()
    files["apt.conf"] = (comment + "".join(f"{line}\n" for line in apt)).encode()
    exports = "".join(f"{name}={shlex.quote(value)}\n" for name, value in sorted(environment.items()))
    files["environment"] = (comment + exports).encode()
    return files


def archive(files: Mapping[str, bytes]) -> bytes:
    """The files as a compressed tar."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            entry.mode = 0o644
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def this_machine() -> Machine:
    """Ask pip, apt and the environment."""
    pip = pip_settings(_told([sys.executable, "-m", "pip", "config", "list"]))
    release = Path("/etc/os-release")
    apt = _told(["apt-config", "dump"]) if Path("/usr/bin/apt-config").exists() else ""
    return Machine(
        pip=pip,
        apt=apt_settings(apt),
        sources=_apt_files(Path("/etc/apt")) if apt else {},
        environment={name: os.environ[name] for name in _PROXIES if name in os.environ},
        codename=codename(release.read_text(encoding="utf-8")) if release.exists() else "",
        certificates=_certificates(pip),
    )


def _certificates(pip: Mapping[str, str]) -> bytes:
    named = [pip.get("cert"), *(os.environ.get(name) for name in _CERTIFICATE_VARIABLES)]
    path = next((name for name in named if name), None)
    if path is None:
        return b""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise BuildError(
            f"The certificates {path} that pip is told to use cannot be read: {error.strerror}."
        ) from error


def _apt_files(folder: Path) -> dict[str, bytes]:
    """Sources, their keys and their passwords, as far as they are there."""
    patterns = ("sources.list", "sources.list.d/*.list", "sources.list.d/*.sources", "trusted.gpg", "trusted.gpg.d/*")
    found = _matching(folder, (*patterns, "auth.conf", "auth.conf.d/*.conf"))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def _matching(folder: Path, patterns: Iterable[str]) -> list[Path]:
    return sorted(path for pattern in patterns for path in folder.glob(pattern) if path.is_file())


def _told(command: list[str]) -> str:
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise BuildError(f"`{shlex.join(command)}` failed: {answer.stderr.strip()}")
    return answer.stdout
