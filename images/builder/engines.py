"""The engines docker, podman and buildah: their command lines, and how to find and run one.

A build needs a folder with a Dockerfile. The image is then in the engine's local store, and can be saved as a
docker-archive. The output of the engine is written to a log file. The message of a failure names that file.
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
"""Number of lines of a failed build's log in the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """The parameters of one build."""

    folder: Path
    reference: str
    """`prefix/name:version`."""
    arguments: Mapping[str, str]
    secret: Path
    no_cache: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One program that builds images, with its commands."""

    name: str
    answers: tuple[str, ...]
    """A command that succeeds if the program works. docker, for example, does not work without its daemon."""
    build: tuple[str, ...]
    """The build command, without the options that all engines have in common."""
    has: Callable[[str], list[str]]
    """Returns the command that succeeds if an image is in the local store."""
    pull: Callable[[str], list[str]]
    """Returns the command that pulls an image."""
    save: Callable[[str, Path], list[str]]
    """Returns the command that writes an image from the local store to a docker-archive."""
    environment: Mapping[str, str]

    def build_command(self, build: Build) -> list[str]:
        """Return the command that builds an image."""
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
        # The isolation chroot needs no container runtime, and also works in a container.
        build=("buildah", "bud", "--isolation=chroot", "--layers", "--force-rm", "--format=docker", "--network=host"),
        has=lambda reference: ["buildah", "inspect", "--type=image", reference],
        pull=lambda reference: ["buildah", "pull", reference],
        save=lambda reference, path: ["buildah", "push", "--quiet", reference, f"docker-archive:{path}:{reference}"],
        environment={},
    ),
)
"""The engines in the order of preference."""


def find_engine(name: str | None = None) -> Engine:
    """Return the engine with this name, or the first that works. Raises `BuildError` if it does not work."""
    for engine in ENGINES:
        if name in (None, engine.name) and works(engine):
            return engine
    if name is not None:
        raise BuildError(f"{name} does not work: check that it is installed and that its daemon, if any, is running.")
    raise BuildError(
        "none of docker, podman and buildah is installed and works: install one of them "
        "(Debian: apt-get install buildah), or use --install."
    )


def works(engine: Engine) -> bool:
    """Whether the program is installed and works."""
    if shutil.which(engine.name) is None:
        return False
    return subprocess.run(engine.answers, capture_output=True, check=False).returncode == 0


def has_image(engine: Engine, reference: str) -> bool:
    """Whether an image is in the engine's local store."""
    return subprocess.run(engine.has(reference), capture_output=True, check=False).returncode == 0


def pull(engine: Engine, reference: str, log: Path) -> None:
    """Pull a base image. Raises `BuildError`, with the alternatives, if that fails."""
    try:
        run(engine, engine.pull(reference), log)
    except BuildError as error:
        raise BuildError(
            f"The base image {reference} is not on this machine and cannot be pulled. Either\n"
            "  - use another Debian image with Python 3.11 or newer:                     make images BASE=IMAGE\n"
            "  - or create the base image without a registry (needs root and Debian):    make images BASE=debian\n"
            f"{error}"
        ) from error


def run(engine: Engine, command: Sequence[str], log: Path) -> None:
    """Run a command and append its output to `log`. Raises `BuildError`, with the last lines of the log, if it
    fails."""
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
