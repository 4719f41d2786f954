"""A source and a target for the mirror, with one broker each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek_testkit.clients.two_clusters import MirroredClusters, mirrored_clusters


@pytest.fixture
def two_clusters(tmp_path: Path) -> Iterator[MirroredClusters]:
    """Two clusters of one broker each."""
    with mirrored_clusters(tmp_path) as clusters:
        yield clusters
