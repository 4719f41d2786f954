"""The images that there are: what each is built from, in one table. Pure.

Called by `images/build.py` for what to build and by its tests for what to hold to the rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One image."""

    name: str
    summary: str
    scripts: tuple[str, ...]
    """Of images/common, beside what its own folder holds."""
    extras: tuple[str, ...] | None = ()
    """Of the project, whose dependencies the image has beside the plain ones; None: it says itself what it needs."""
    has_spark: bool = False
    """Whether PySpark's wheel is handed to its build stage."""


IMAGES: Final = (
    Image(
        name="broker",
        summary="a broker, or the exporter of a cluster",
        scripts=("make-venv", "with-machine", "add-user"),
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
"""Packages of the wheel."""

WHEEL_FILES: Final = ("pyproject.toml", "README.md")
"""Other files that the wheel is made from."""

DEFAULT_BASE: Final = "python:3.12-slim"

OWN_BASE: Final = "debian"
"""The value of --base with which the base image is made here."""
OWN_BASE_IMAGE: Final = "localhost/odradek-base:bookworm"
