"""Clusters for tests that need only one broker."""

from __future__ import annotations

import pytest

from odradek.testing.plugin import ClusterFactory
from odradek.testing.running_cluster import RunningCluster


@pytest.fixture
def odradek_single(odradek_cluster_factory: ClusterFactory) -> RunningCluster:
    """A broker for one test."""
    return odradek_cluster_factory(brokers=1)
