"""One run of `images/build.py`: decides which images have to be built, and builds them.

The results are images in the engine's local store, and archives with the hashes of their input. The working folder
(default `.odradek/images`) has wheels, the base image and logs. The build secret is in a temporary folder that only
this user can read, and is deleted after the run.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.builder import base, hashing, machine, wheels
from images.builder.catalogue import OWN_BASE, OWN_BASE_IMAGE, SOURCES, WHEEL_FILES, Image
from images.builder.engines import Build, Engine, has_image, pull, run
from images.builder.errors import BuildError
from images.builder.leaks import leaks, private_hosts

PACKAGES: Final = ("buildah", "debootstrap")
"""Debian packages that --install installs if no engine works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a run."""

    root: Path
    work: Path
    images: tuple[Image, ...]
    output: Path | None
    prefix: str
    version: str
    base: str
    force: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """The result for one image."""

    reference: str
    seconds: float
    archive: Path | None
    was_fresh: bool


class Job:
    """One run, which builds all images that are not up to date."""

    def __init__(self, options: Options, engine: Callable[[], Engine], tell: Callable[[str], None]) -> None:
        """`engine` finds the engine, and is only called if something has to be built. `tell` is called with progress
        lines."""
        self._options: Final = options
        self._find_engine: Final = engine
        self._tell: Final = tell
        self._logs: Final = options.work / "logs"

    def run(self) -> list[Built]:
        """Build the images that are not up to date. Raises `BuildError` for the first image that cannot be built."""
        with self._alone():
            return self._run()

    def _run(self) -> list[Built]:
        options = self._options
        hashes = {image.name: self._hash(image) for image in options.images}
        stale = [image for image in options.images if options.force or not self._is_fresh(image, hashes[image.name])]
        built = {image.name: self._kept(image) for image in options.images if image not in stale}
        for image in options.images:
            if image.name in built:
                self._tell(f"{image.name}: unchanged, so the archive is kept")
        if stale:
            engine = self._find_engine()
            self._tell(f"{engine.name} builds {', '.join(image.name for image in stale)} on {options.base}")
            mark = f"odradek-build-{secrets.token_hex(12)}"
            source = machine.this_machine()
            with _secret(source, mark) as secret:
                self._prepare(engine, source, stale, secret)
                for image in stale:
                    built[image.name] = self._build(engine, image, secret, hashes[image.name])
                    self._check(built[image.name], source, mark)
        return [built[image.name] for image in options.images]

    def reference(self, image: Image) -> str:
        """Return `prefix/name:version`."""
        return f"{self._options.prefix}/{image.name}:{self._options.version}"

    def _hash(self, image: Image) -> str:
        root = self._options.root
        common = [root / "images/common" / script for script in image.scripts]
        paths = [root / "images" / image.name, *common, root / "constraints.txt"]
        paths += [root / name for name in (*SOURCES, *WHEEL_FILES)]
        own = base.recipe() if self._options.base == OWN_BASE else ""
        return hashing.content_hash(root, paths, (self.reference(image), self._options.base, own))

    def _archive(self, image: Image) -> Path | None:
        return None if self._options.output is None else self._options.output / f"{image.name}.tar"

    def _is_fresh(self, image: Image, wanted: str) -> bool:
        archive = self._archive(image)
        return archive is not None and hashing.is_fresh(archive, wanted)

    def _kept(self, image: Image) -> Built:
        return Built(reference=self.reference(image), seconds=0.0, archive=self._archive(image), was_fresh=True)

    def _prepare(self, engine: Engine, source: machine.Machine, stale: Sequence[Image], secret: Path) -> None:
        """Prepare the base image and the wheels. The base image comes first, because pulling it fails most often."""
        options = self._options
        if options.base == OWN_BASE:
            self._make_base(engine, source, secret)
        elif not has_image(engine, options.base):
            with self._step(f"pulling the base image {options.base}"):
                pull(engine, options.base, self._fresh_log("base"))
        if not all(image.is_compiled for image in stale):
            with self._step("building the project's wheel"):
                wheels.project_wheel(options.root, options.work / "wheels", self._fresh_log("wheels"))
        if any(image.has_spark for image in stale):
            version = wheels.spark_version((options.root / "constraints.txt").read_text(encoding="utf-8"))
            with self._step(f"building the wheel of PySpark {version}"):
                wheels.spark_wheel(version, options.work / "spark-wheels", self._logs / "wheels.log")

    def _make_base(self, engine: Engine, source: machine.Machine, secret: Path) -> None:
        """Create the base image, unless the engine has it. A tar of an earlier run is reused."""
        folder, note = self._options.work / "base", self._options.work / "base.recipe"
        folder.mkdir(parents=True, exist_ok=True)
        tar = folder / "base.tar"
        is_kept = tar.exists() and note.exists() and note.read_text(encoding="ascii") == base.recipe()
        if is_kept and has_image(engine, OWN_BASE_IMAGE):
            return
        if not is_kept:
            with self._step(f"creating a root file system of Debian {base.SUITE} with debootstrap"):
                texts = [data.decode(errors="replace") for data in source.sources.values()]
                note.unlink(missing_ok=True)
                base.make_base(tar, texts, self._fresh_log("debootstrap"))
        shutil.copyfile(self._options.root / "images/base/Dockerfile", folder / "Dockerfile")
        with self._step("building the base image"):
            build = Build(folder=folder, reference=OWN_BASE_IMAGE, arguments={}, secret=secret)
            run(engine, engine.build_command(build), self._fresh_log("base"))
        note.write_text(base.recipe(), encoding="ascii")

    def _build(self, engine: Engine, image: Image, secret: Path, wanted: str) -> Built:
        options, log, began = self._options, self._fresh_log(image.name), time.monotonic()
        folder = self._folder(image)
        base_image = OWN_BASE_IMAGE if options.base == OWN_BASE else options.base
        arguments = {"BASE": base_image, "VERSION": options.version, "REVISION": _revision(options.root)}
        reference, archive = self.reference(image), self._archive(image)
        with self._step(reference):
            build = Build(
                folder=folder, reference=reference, arguments=arguments, secret=secret, no_cache=options.force
            )
            run(engine, engine.build_command(build), log)
            if archive is not None:
                self._save(engine, reference, archive, log)
                hashing.hash_file(archive).write_text(wanted + "\n", encoding="ascii")
        shutil.rmtree(folder)
        return Built(reference=reference, seconds=time.monotonic() - began, archive=archive, was_fresh=False)

    def _save(self, engine: Engine, reference: str, archive: Path, log: Path) -> None:
        archive.parent.mkdir(parents=True, exist_ok=True)
        hashing.hash_file(archive).unlink(missing_ok=True)
        # Engines do not overwrite an archive, and an interrupted run must not leave an incomplete one.
        part = archive.with_name(archive.name + ".part")
        part.unlink(missing_ok=True)
        run(engine, engine.save(reference, part), log)
        part.rename(archive)

    def _folder(self, image: Image) -> Path:
        """Create the folder that is the context of a build."""
        options = self._options
        folder = options.work / "folders" / image.name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(options.root / "images" / image.name, folder, ignore=shutil.ignore_patterns("__pycache__"))
        for script in image.scripts:
            shutil.copy2(options.root / "images/common" / script, folder)
        shutil.copy2(options.root / "constraints.txt", folder)
        if image.extras is not None:
            pyproject = (options.root / "pyproject.toml").read_text(encoding="utf-8")
            needed = wheels.requirements(pyproject, image.extras)
            (folder / "requirements.txt").write_text("".join(f"{line}\n" for line in needed), encoding="utf-8")
        if image.is_compiled:
            _copy_source(options.root, folder / "source")
        else:
            shutil.copytree(options.work / "wheels", folder / "wheels")
        if image.has_spark:
            _link_tree(options.work / "spark-wheels", folder / "spark-wheels")
        return folder

    def _check(self, built: Built, source: machine.Machine, mark: str) -> None:
        """Check that an archive contains no settings of this machine. If it does, delete it and raise `BuildError`."""
        if built.archive is None:
            return
        texts = [*source.pip.values(), *source.apt, *source.environment.values()]
        texts += [data.decode(errors="replace") for name, data in source.sources.items() if "sources" in name]
        with self._step(f"checking {built.archive.name} for settings of this machine"):
            found = leaks(built.archive, {mark.encode(), *private_hosts(texts)})
        if found:
            hashing.hash_file(built.archive).unlink(missing_ok=True)
            built.archive.unlink()
            places = ", ".join(sorted({leak.place for leak in found})[:5])
            raise BuildError(
                f"the archive of {built.reference} was deleted, because it contains package settings of this machine: "
                f"{places}"
            )

    def _fresh_log(self, name: str) -> Path:
        log = self._logs / f"{name}.log"
        log.unlink(missing_ok=True)
        return log

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the working folder: two runs at the same time would overwrite each other's wheels."""
        self._options.work.mkdir(parents=True, exist_ok=True)
        with (self._options.work / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._tell("waiting for another build in the same folder ...")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _step(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        self._tell(f"{what} ...")
        yield
        self._tell(f"{what}: {time.monotonic() - began:.1f} s")


def _copy_source(root: Path, target: Path) -> None:
    """Copy everything that the project's wheel is built from."""
    for name in SOURCES:
        shutil.copytree(root / name, target / name, ignore=shutil.ignore_patterns(*hashing.IGNORED))
    for name in WHEEL_FILES:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, target / name)


def _link_tree(source: Path, target: Path) -> None:
    """Copy files as hard links, which need no space. The files must not be changed."""
    target.mkdir()
    for path in source.iterdir():
        os.link(path, target / path.name)


@contextmanager
def _secret(source: machine.Machine, mark: str) -> Iterator[Path]:
    """Yield the path of a temporary file with the build secret."""
    with tempfile.TemporaryDirectory(prefix="odradek-images-") as folder:
        path = Path(folder) / "machine.tar.gz"
        path.touch(mode=0o600)
        path.write_bytes(machine.archive(machine.secret_files(source, mark)))
        yield path


def _revision(root: Path) -> str:
    answer = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False)
    return answer.stdout.strip() if answer.returncode == 0 else "unknown"


def install_packages() -> None:
    """Install buildah and debootstrap with apt-get. Raises `BuildError` without root or apt-get, or if it fails."""
    missing = [name for name in PACKAGES if shutil.which(name) is None]
    if not missing:
        return
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *missing]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise BuildError(f"{' and '.join(missing)} must be installed: as root on Debian, run `{' '.join(command)}`.")
    for step in (["apt-get", "update"], command):
        done = subprocess.run(
            step, stdout=sys.stderr, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, check=False
        )
        if done.returncode:
            raise BuildError(f"`{' '.join(step)}` failed: see its output above.")
