"""Builds Odradek's container images: `make images`, or `python images/build.py --help`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from images.builder.catalogue import DEFAULT_BASE, IMAGES, NAMES, OWN_BASE  # noqa: E402 - the path comes first
from images.builder.engines import ENGINES, Engine, find_engine  # noqa: E402
from images.builder.errors import BuildError  # noqa: E402
from images.builder.job import Built, Job, Options, install_packages  # noqa: E402

HELP = """\
Builds the images of Odradek with docker, podman or buildah, whichever works first:

{images}

The images are named PREFIX/NAME:VERSION, and are in the local store of the engine. To distribute them:

  docker push ...                         pushes to the registry in --prefix, for example registry.example/odradek
  --output images-out                     writes NAME.tar (docker-archive); `docker load`, `kind load image-archive`,
                                          `ctr -n k8s.io images import` and others read it

With --output, an image is not built again if nothing has changed since its archive was written.

Builds get this machine's settings for package sources (pip, apt, certificates, proxies) as a build secret, so that they
are not part of the images. Each archive is checked for them. Without access to a registry, use `--base debian`, which
creates the base image with debootstrap and needs root.

examples:
  make images
  python images/build.py --only broker --prefix registry.example/odradek --version 0.1.0
  python images/build.py --base debian --install --output dist/images
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    listed = "\n".join(f"  {image.name:10} {image.summary}" for image in IMAGES)
    result = argparse.ArgumentParser(
        prog="images/build.py",
        description=HELP.format(images=listed),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("--output", type=Path, metavar="DIR", help="also write each image to DIR/NAME.tar")
    result.add_argument("--only", action="append", choices=NAMES, metavar="NAME", help="build this image; repeatable")
    result.add_argument("--prefix", default="odradek", help="prefix of image names (default: %(default)s)")
    result.add_argument("--version", default=None, help="tag of the images (default: the project's version)")
    result.add_argument(
        "--base", default=DEFAULT_BASE, metavar="IMAGE",
        help=f"a Debian image with Python 3.11 or newer, or `{OWN_BASE}` to create one (default: %(default)s)",
    )  # fmt: skip
    names = [engine.name for engine in ENGINES]
    result.add_argument("--engine", choices=names, help="the engine to use (default: the first that works)")
    result.add_argument("--install", action="store_true", help="install buildah and debootstrap with apt-get if needed")
    result.add_argument("--force", action="store_true", help="rebuild existing images, without the engine's cache")
    result.add_argument("--work", type=Path, default=ROOT / ".odradek/images", metavar="DIR", help=argparse.SUPPRESS)
    return result


def options(arguments: argparse.Namespace) -> Options:
    """Return the options of the build."""
    chosen = tuple(image for image in IMAGES if not arguments.only or image.name in arguments.only)
    output: Path | None = arguments.output
    return Options(
        root=ROOT,
        work=arguments.work.resolve(),
        images=chosen,
        output=None if output is None else output.resolve(),
        prefix=arguments.prefix.rstrip("/"),
        version=arguments.version or project_version(),
        base=arguments.base,
        force=arguments.force,
    )


def project_version() -> str:
    """Return the version in pyproject.toml."""
    import tomllib

    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def table(built: Sequence[Built]) -> str:
    """Return a table of the images: name, duration, and the size and path of the archive."""
    width = max(len(each.reference) for each in built)
    lines = []
    for each in built:
        took = "unchanged" if each.was_fresh else f"{each.seconds:.1f} s"
        size = "" if each.archive is None else f"  {each.archive.stat().st_size / 1e6:7.0f} MB  {each.archive}"
        lines.append(f"  {each.reference:{width}}  {took:>9}{size}")
    return "\n".join(lines)


def engine_for(arguments: argparse.Namespace) -> Engine:
    """Return the engine to use. With `--install`, it is installed if none works."""
    if arguments.install:
        try:
            return find_engine(arguments.engine)
        except BuildError:
            install_packages()
    return find_engine(arguments.engine)


def main(command_line: Sequence[str] | None = None) -> int:
    """Run the command line. Return the exit code."""
    arguments = parser().parse_args(command_line)
    began = time.monotonic()

    def tell(line: str) -> None:
        sys.stderr.write(f"[{time.monotonic() - began:6.1f} s] {line}\n")

    try:
        if arguments.install and arguments.base == OWN_BASE:
            install_packages()
        built = Job(options(arguments), lambda: engine_for(arguments), tell).run()
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(table(built) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
