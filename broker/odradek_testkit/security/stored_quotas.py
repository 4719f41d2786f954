"""Writes quotas of clients to ZooKeeper as Kafka does: the znode of the entity, then the notification."""

from __future__ import annotations

from collections.abc import Mapping

from kazoo.client import KazooClient

from odradek.security.quotas.quota_model import QuotaEntity, QuotaKind, entity_path, format_quota
from odradek.zk import layout
from odradek.zk.layout import ConfigChangeNotification


def set_quotas(zookeeper: str, entity: QuotaEntity, quotas: Mapping[QuotaKind, float]) -> None:
    """Make these the only quotas of an entity that has no other settings."""
    client = KazooClient(hosts=zookeeper)
    client.start()
    try:
        path = entity_path(entity)
        znode = f"{layout.CONFIG}/{path}"
        client.ensure_path(znode)
        client.set(znode, layout.encode_config({kind: format_quota(kind, value) for kind, value in quotas.items()}))
        notification = f"{layout.CONFIG_CHANGES}/{layout.CONFIG_CHANGE_PREFIX}"
        data = ConfigChangeNotification(entity_path=path).encode()
        client.create(notification, data, sequence=True, makepath=True)
    finally:
        client.stop()
        client.close()
