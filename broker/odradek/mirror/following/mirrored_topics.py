"""What mirrors have created in a cluster: the records of the compacted topic `odradek-mirror-topics`. Pure.

The topic is in the target. It is one for all mirrors into that cluster, so that they do not change each other's topics.
Its key is the name of a topic, its value a JSON object. `topic_follower` writes a record before it creates a topic, and
again when the topic has its id. So after a crash, the mirror recognizes what it has created.

A mirror also reads this topic in its sources. A record there has the ids of all clusters from which the topic comes. A
topic that comes from the target is not copied back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from odradek.base.errors import ConfigError
from odradek.base.types import ZERO_UUID
from odradek.security.acls.model import AclOperation, AclPermission, AclRule
from odradek.security.principals import parse_principal

MIRRORED_TOPICS: Final = "odradek-mirror-topics"
"""The topic of the records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredTopic:
    """A topic that a mirror has created, or is about to create."""

    name: str
    """Name in the target."""
    source: str
    """Name of the source in the mirror's configuration."""
    source_topic: str
    source_id: UUID = ZERO_UUID
    """Id of the topic in the source; zero if its brokers are too old for ids."""
    target_id: UUID | None = None
    """Id of the topic in the target. None before the topic has been created; zero if its brokers do not have ids."""
    origins: tuple[str, ...] = ()
    """Ids of the clusters that the records come from: the source first, then the clusters that it has copied from."""
    rules: frozenset[AclRule] = frozenset()
    """The access rules that the mirror has created for the topic."""

    def key(self) -> bytes:
        """Return the key of the record."""
        return self.name.encode()

    def value(self) -> bytes:
        """Return the value of the record."""
        fields = {
            "source": self.source,
            "topic": self.source_topic,
            "topicId": str(self.source_id),
            "createdId": None if self.target_id is None else str(self.target_id),
            "origins": list(self.origins),
            "acls": sorted([str(r.principal), r.permission.name, r.operation.name, r.host] for r in self.rules),
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    def is_copy(self, topic_id: UUID) -> bool:
        """Whether the record is about the topic that has this id in the target now."""
        return self.target_id is None or ZERO_UUID in (topic_id, self.target_id) or self.target_id == topic_id

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> MirroredTopic:
        """Return the topic in a record. Raises `ConfigError` for any other record."""
        try:
            fields: Mapping[str, Any] = json.loads(value)
            created = fields["createdId"]
            return cls(
                name=key.decode(),
                source=fields["source"],
                source_topic=fields["topic"],
                source_id=UUID(fields["topicId"]),
                target_id=None if created is None else UUID(created),
                origins=tuple(fields["origins"]),
                rules=frozenset(_rule(*each) for each in fields["acls"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"topic {MIRRORED_TOPICS} has a record that no mirror wrote: key {key!r:.80}") from error


def _rule(principal: str, permission: str, operation: str, host: str) -> AclRule:
    return AclRule(parse_principal(principal), AclPermission[permission], AclOperation[operation], host)
