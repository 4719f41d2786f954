"""Apache Kafka's jars, once for the whole run, kept in `.interop/` between runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.testing.apache import jars

VERSIONS = ("3.9.1", "4.1.0")


@pytest.fixture(scope="session", params=VERSIONS)
def kafka_jars(request: pytest.FixtureRequest) -> Path:
    """The jars of each Apache Kafka version in turn."""
    return jars(request.param, Path(request.config.rootpath) / ".interop")
