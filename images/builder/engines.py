"""docker, podman or buildah: which one is there, and what each is told to do. The tables are pure; `run` starts them.

Enters: a folder with a Dockerfile, a name, a base, a secret. Leaves: an image in the engine's store, and, when asked
for, a docker-archive. Called by `images/build.py`. The engine's own output goes to a log file that a failure names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.builder.errors import BuildError

LOG_LINES: Final = 15
"""Of a failed build's log that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """What one build takes."""

    folder: Path
    reference: str
    """`prefix/name:version`."""
    arguments: Mapping[str, str]
    secret: Path
    no_cache: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One program that builds images."""

    name: str
    answers: tuple[str, ...]
    """A command that succeeds when the program can work; docker's client may be there without its daemon."""
    build: tuple[str, ...]
    """The command up to the options that all share."""
    has: Callable[[str], list[str]]
    """The command that succeeds when an image is in the store."""
    pull: Callable[[str], list[str]]
    """The command that gets an image from its registry."""
    save: Callable[[str, Path], list[str]]
    """The command that writes an image of the store to a docker-archive."""
    environment: Mapping[str, str]

    def build_command(self, build: Build) -> list[str]:
        """The command for one image."""
        options = [f"--build-arg={name}={value}" for name, value in sorted(build.arguments.items())]
        cache = ["--no-cache"] if build.no_cache else []
        secret = f"--secret=id=machine,src={build.secret}"
        return [*self.build, *options, *cache, secret, "--tag", build.reference, str(build.folder)]


ENGINES: Final = (
    Engine(
        name="docker",
        answers=("docker", "version"),
        build=("docker", "build", "--progress=plain"),
        has=lambda reference: ["docker", "image", "inspect", reference],
        pull=lambda reference: ["docker", "pull", reference],
        save=lambda reference, path: ["docker", "save", "--output", str(path), reference],
        environment={"DOCKER_BUILDKIT": "1"},
    ),
    Engine(
        name="podman",
        answers=("podman", "info"),
        build=("podman", "build", "--layers", "--format=docker"),
        has=lambda reference: ["podman", "image", "exists", reference],
        pull=lambda reference: ["podman", "pull", reference],
        save=lambda reference, path: ["podman", "save", "--format=docker-archive", "--output", str(path), reference],
        environment={},
    ),
    Engine(
        name="buildah",
        answers=("buildah", "info"),
        # chroot: needs no container runtime and works in a container, too.
        build=("buildah", "bud", "--isolation=chroot", "--layers", "--force-rm", "--format=docker", "--network=host"),
        has=lambda reference: ["buildah", "inspect", "--type=image", reference],
        pull=lambda reference: ["buildah", "pull", reference],
        save=lambda reference, path: ["buildah", "push", "--quiet", reference, f"docker-archive:{path}:{reference}"],
        environment={},
    ),
)
"""In the order of preference."""


def find_engine(name: str | None = None) -> Engine:
    """The one of this name, else the first that works; `BuildError` when there is none."""
    for engine in ENGINES:
        if name in (None, engine.name) and works(engine):
            return engine
    if name is not None:
        raise BuildError(f"{name} cannot be used here: is it installed, and does its daemon, if it has one, run?")
    raise BuildError(
        "docker, podman and buildah are not here, or do not answer: install one of them "
        "(Debian: apt-get install buildah), or let this command do that with --install."
    )


def works(engine: Engine) -> bool:
    """Whether the program is there and can work."""
    if shutil.which(engine.name) is None:
        return False
    return subprocess.run(engine.answers, capture_output=True, check=False).returncode == 0


def has_image(engine: Engine, reference: str) -> bool:
    """Whether the engine's store has an image."""
    return subprocess.run(engine.has(reference), capture_output=True, check=False).returncode == 0


def pull(engine: Engine, reference: str, log: Path) -> None:
    """Get a base image from its registry; `BuildError` with the ways to go on when that fails."""
    try:
        run(engine, engine.pull(reference), log)
    except BuildError as error:
        raise BuildError(
            f"The base image {reference} is not on this machine and cannot be pulled. Either\n"
            "  - name a Debian image with Python 3.11 or newer that can be pulled here:  make images BASE=IMAGE\n"
            "  - or build the base here without a registry (as root on Debian):          make images BASE=debian\n"
            f"{error}"
        ) from error


def run(engine: Engine, command: Sequence[str], log: Path) -> None:
    """Run one command to its end with its output in `log`; `BuildError` with the log's last lines when it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **engine.environment},
            check=False,
        )
    if result.returncode:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]
        raise BuildError(f"{engine.name} failed; the end of its log {log}:\n  " + "\n  ".join(lines))
