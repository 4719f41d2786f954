"""Two clusters with a mirror from one to the other, for tests of its followers."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.client.admin import Admin
from odradek.client.cluster_client import Cluster
from odradek.mirror.mirror_config import MirrorConfig, SourceConfig


@dataclass(frozen=True)
class MirroredPair:
    """A source and a target, with a mirror from one to the other."""

    config: MirrorConfig
    source_client: Cluster
    target_client: Cluster

    @property
    def source(self) -> SourceConfig:
        """The only source of the mirror."""
        return self.config.sources[0]

    @property
    def in_source(self) -> Admin:
        """The admin client of the source."""
        return Admin(cluster=self.source_client)

    @property
    def in_target(self) -> Admin:
        """The admin client of the target."""
        return Admin(cluster=self.target_client)


def mirror_config(source: str, target: str, *, prefix: str = "east.", name: str = "east") -> MirrorConfig:
    """Return a mirror of all topics and groups between two addresses."""
    text = f"""
        name: dc-mirror
        target: {{bootstrapServers: "{target}"}}
        sources:
          - name: {name}
            bootstrapServers: "{source}"
            topics: {{include: [".*"]}}
            groups: {{include: [".*"]}}
            prefix: "{prefix}"
            acls: true
    """
    return MirrorConfig.parse(text, "test")
