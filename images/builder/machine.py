"""The build secret: this machine's settings for package sources, such as mirrors, proxies and certificates.

It is a small archive with settings of pip and apt. `with-machine` unpacks it into memory during a RUN instruction, so
that it is not part of any layer. Every file in it contains a mark, for which `leaks` searches the image. Only settings
for package sources are copied: others, such as apt's hooks and local folders, do not apply to a container.
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

SECRET_FOLDER: Final = "/run/machine"
"""Folder into which a build unpacks the archive."""

PIP_SETTINGS: Final = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "default-timeout", "retries")
"""Settings of pip that are copied. In addition, the file that `cert` names is copied."""

_PROXIES: Final = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_CERTIFICATE_VARIABLES: Final = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
_PIP_LINE: Final = re.compile(r"(?P<section>[^.]+)\.(?P<key>[a-z-]+)=(?P<value>'.*'|\".*\")")
_APT_KEPT: Final = re.compile(r"Acquire::(?!IndexTargets|Languages|GzipIndexes|CompressionTypes|Changelogs)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The settings of this machine."""

    pip: Mapping[str, str]
    apt: tuple[str, ...]
    """Lines of apt's configuration."""
    sources: Mapping[str, bytes]
    """Contents of the files with package sources, keys and passwords, by their path below /etc/apt."""
    environment: Mapping[str, str]
    codename: str
    """Code name of the release to which the package sources belong; empty if it has none."""
    certificates: bytes
    """The certificates that this machine trusts; empty if it trusts only the default ones."""


def pip_settings(listed: str) -> dict[str, str]:
    """Return the settings in the output of `pip config list`. Environment variables take precedence over files."""
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
    """Return the lines of `apt-config dump` about access to package sources: proxies, timeouts, certificates."""
    return tuple(line for line in dumped.splitlines() if _APT_KEPT.match(line) and not line.endswith('"";'))


def codename(os_release: str) -> str:
    """Return VERSION_CODENAME from the text of /etc/os-release; empty if it is missing."""
    match = re.search(r"^VERSION_CODENAME=\"?([a-z]+)", os_release, re.MULTILINE)
    return match.group(1) if match else ""


def secret_files(machine: Machine, mark: str) -> dict[str, bytes]:
    """Return the contents of the files in the archive, by name. Each contains the mark."""
    comment = f"# {mark}\n"
    environment = {"MACHINE_CODENAME": machine.codename, **machine.environment}
    environment |= {"PIP_CONFIG_FILE": f"{SECRET_FOLDER}/pip.conf", "APT_CONFIG": f"{SECRET_FOLDER}/apt.conf"}
    pip = {key: value for key, value in machine.pip.items() if key != "cert"}
    apt = list(machine.apt)
    files: dict[str, bytes] = {}
    if machine.certificates:
        path = f"{SECRET_FOLDER}/certificates.pem"
        files["certificates.pem"] = comment.encode() + machine.certificates
        pip["cert"] = path
        environment["SSL_CERT_FILE"] = path
        apt.append(f'Acquire::https::CAInfo "{path}";')
    if machine.sources:
        apt.append(f'Dir::Etc "{SECRET_FOLDER}/apt";')
        files |= {f"apt/{name}": data for name, data in machine.sources.items()}
    settings = "".join(f"{key} = {value}\n" for key, value in sorted(pip.items()))
    files["pip.conf"] = f"{comment}[global]\n{settings}".encode()
    files["apt.conf"] = (comment + "".join(f"{line}\n" for line in apt)).encode()
    exports = "".join(f"{name}={shlex.quote(value)}\n" for name, value in sorted(environment.items()))
    files["environment"] = (comment + exports).encode()
    return files


def archive(files: Mapping[str, bytes]) -> bytes:
    """Return the files as a compressed tar."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            entry.mode = 0o644
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def this_machine() -> Machine:
    """Read the settings from pip, apt and environment variables. Raises `BuildError` if that fails."""
    pip = pip_settings(_output_of([sys.executable, "-m", "pip", "config", "list"]))
    release = Path("/etc/os-release")
    apt = _output_of(["apt-config", "dump"]) if Path("/usr/bin/apt-config").exists() else ""
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
            f"The file {path}, which a setting of pip or an environment variable names, cannot be read: "
            f"{error.strerror}."
        ) from error


def _apt_files(folder: Path) -> dict[str, bytes]:
    """Return the existing files with package sources, keys and passwords."""
    patterns = ("sources.list", "sources.list.d/*.list", "sources.list.d/*.sources", "trusted.gpg", "trusted.gpg.d/*")
    found = _matching(folder, (*patterns, "auth.conf", "auth.conf.d/*.conf"))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def _matching(folder: Path, patterns: Iterable[str]) -> list[Path]:
    return sorted(path for pattern in patterns for path in folder.glob(pattern) if path.is_file())


def _output_of(command: list[str]) -> str:
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise BuildError(f"`{shlex.join(command)}` failed: {answer.stderr.strip()}")
    return answer.stdout
