"""The table of images, and what each is built from. Pure.

`images/build.py` builds these images. Tests check their Dockerfiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One image. Its folder below `images` has its name."""

    name: str
    summary: str
    scripts: tuple[str, ...]
    """Scripts of images/common that its build uses."""
    extras: tuple[str, ...] | None = ()
    """Extras of the project whose dependencies are installed. None: the image has its own requirements.txt."""
    has_spark: bool = False
    """Whether the build needs PySpark's wheel."""
    is_compiled: bool = False
    """Whether the build compiles the core. It then gets the project's source in the folder `source`, because the result
    depends on the Python version of the base image. Other images get a wheel of pure Python in the folder `wheels`."""


IMAGES: Final = (
    Image(
        name="broker",
        summary="a broker, or the exporter or the console of a cluster",
        extras=("console",),
        scripts=("make-venv", "with-machine", "add-user", "add-compiler", "build-wheel"),
        is_compiled=True,
    ),
    Image(
        name="operator",
        summary="the operator",
        extras=("operator",),
        scripts=("make-venv", "with-machine", "add-user"),
    ),
    Image(
        name="zookeeper",
        summary="a member of a ZooKeeper ensemble",
        extras=None,
        scripts=("make-venv", "with-machine", "add-user", "add-java"),
        has_spark=True,
    ),
    Image(
        name="spark",
        summary="Spark with the connector: driver, executor, submit",
        extras=("spark",),
        scripts=("make-venv", "with-machine", "add-user", "add-java"),
        has_spark=True,
    ),
)

NAMES: Final = tuple(image.name for image in IMAGES)

SOURCES: Final = ("broker/odradek", "operator/odradek_operator", "spark/odradek_demo", "spark/pyspark_odradek")
"""Folders of the Python packages in the project's wheel."""

WHEEL_FILES: Final = ("pyproject.toml", "README.md", "broker/tools/build_hook.py", "broker/tools/compile_core.py")
"""Other files on which the project's wheel depends."""

DEFAULT_BASE: Final = "python:3.12-slim"

OWN_BASE: Final = "debian"
"""The value of --base that creates the base image with debootstrap."""
OWN_BASE_IMAGE: Final = "localhost/odradek-base:bookworm"
