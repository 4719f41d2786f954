"""Clusters for tests that a single broker suffices for."""

from __future__ import annotations

import pytest

from odradek.testing.plugin import ClusterFactory
from odradek.testing.running_cluster import RunningCluster


@pytest.fixture
def odradek_single(odradek_cluster_factory: ClusterFactory) -> RunningCluster:
    """One broker of the test's own."""
    return odradek_cluster_factory(brokers=1)
