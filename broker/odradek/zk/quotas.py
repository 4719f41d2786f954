"""All client quotas of the cluster, in memory: `/config/users`, `/config/clients` and `/config/ips`.

`ClientQuotas.table` is replaced as a whole with each change. The broker calls `changed` for each notification in
`/config/changes`; watches report entities that are added or removed without one, and after a lost connection everything
is read again. Changes are compare-and-set loops, each together with its notification in one transaction.

Invariants:
- While ZooKeeper does not answer, the last state holds.
- The znode of a user also has its SCRAM credentials. `change` keeps every key that it does not name, and changes
  nothing if the znode cannot be decoded.
- A value that cannot be decoded is logged and limits nothing; all other quotas are unaffected.
- After `change` has returned, `table` has the change, or a later one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from odradek.base.errors import ConfigError
from odradek.base.ports import Clock
from odradek.security.quotas.quota_model import (
    CLIENTS,
    IPS,
    USERS,
    QuotaEntity,
    QuotaKind,
    QuotaTable,
    entity_path,
    format_quota,
    parse_entity_path,
    parse_quota,
)
from odradek.zk import layout
from odradek.zk.entity_configs import change_entity_config
from odradek.zk.follower import Follower
from odradek.zk.layout import LayoutError
from odradek.zk.port import ZkClient

log = logging.getLogger(__name__)

_Quotas = Mapping[QuotaKind, float]


class ClientQuotas:
    """The quotas of all entities. `table` is empty before `start`."""

    def __init__(self, zk: ZkClient, clock: Clock) -> None:
        """Create it. The client may be unconnected."""
        self._zk = zk
        self.table = QuotaTable()
        """The quotas at one time. Each change replaces it."""
        self._changed: set[QuotaEntity] = set()
        self._reading = asyncio.Lock()
        """Reads and what they change in `table` are in the same order."""
        self._follower = Follower(zk, clock, "client quotas", self._read_changed)

    async def start(self) -> None:
        """Read all quotas, and follow their changes from now on. Raises `ZkError`."""
        parents = (f"{layout.CONFIG}/{kind}" for kind in (USERS, CLIENTS, IPS))
        self._follower.listen(dict.fromkeys(parents, self._follower.want_all))
        await self._read_changed()
        self._follower.run()

    async def close(self) -> None:
        """Stop following. Idempotent."""
        await self._follower.close()

    def changed(self, path: str) -> None:
        """Read an entity again: `path` is that of its znode below `/config`."""
        try:
            self._changed.add(parse_entity_path(path))
        except LayoutError as error:
            log.error("a notification about quotas names no entity and has no effect: %s", error)
            return
        self._follower.wake()

    async def change(self, entity: QuotaEntity, values: Mapping[QuotaKind, float | None]) -> None:
        """Set some quotas of an entity, and remove those whose value is None. Writes nothing if that changes nothing.

        Raises `ConfigError` if a kind cannot have the value, `LayoutError` if no znode can have this name or the znode
        cannot be decoded, and `ZkError`, which leaves it open whether the change was made.
        """
        path = entity_path(entity)
        texts = {kind.value: None if value is None else format_quota(kind, value) for kind, value in values.items()}

        def change(before: Mapping[str, str]) -> Mapping[str, str]:
            merged: dict[str, str | None] = {**before, **texts}
            return {key: text for key, text in merged.items() if text is not None}

        await change_entity_config(self._zk, path, change)
        async with self._reading:
            self.table = self.table.with_entities(await self._quotas_of([entity]))

    async def _read_changed(self) -> None:
        async with self._reading:
            entities, self._changed = self._changed, set()
            if self._follower.take_all():
                found = await self._quotas_of(await self._all_entities())
                self.table = QuotaTable({entity: quotas for entity, quotas in found.items() if quotas})
            else:
                self.table = self.table.with_entities(await self._quotas_of(entities))

    async def _all_entities(self) -> list[QuotaEntity]:
        roots = {f"{layout.CONFIG}/{kind}": kind for kind in (USERS, CLIENTS, IPS)}
        names = await self._zk.children_many(list(roots))
        paths = [f"{kind}/{name}" for root, kind in roots.items() for name in names[root] or ()]
        of_users = [f"{layout.CONFIG}/{path}/{CLIENTS}" for path in paths if path.startswith(f"{USERS}/")]
        for folder, clients in (await self._zk.children_many(of_users)).items():
            paths += [f"{folder.removeprefix(layout.CONFIG + '/')}/{name}" for name in clients or ()]
        return [parse_entity_path(path) for path in paths]

    async def _quotas_of(self, entities: Iterable[QuotaEntity]) -> dict[QuotaEntity, _Quotas]:
        """Read the quotas of entities; those without a znode have none."""
        znodes = {}
        for entity in entities:
            try:
                znodes[f"{layout.CONFIG}/{entity_path(entity)}"] = entity
            except LayoutError as error:
                log.error("quotas of an entity that no znode can have: %s", error)
        found = await self._zk.get_many(list(znodes))
        return {
            entity: {} if (node := found[path]) is None else _decoded(path, node[0], entity)
            for path, entity in znodes.items()
        }


def _decoded(path: str, data: bytes, entity: QuotaEntity) -> _Quotas:
    try:
        values = layout.decode_config(path, data)
    except LayoutError as error:
        log.error("an entity has no quotas until its znode is repaired: %s", error)
        return {}
    quotas = {}
    for kind in entity.kinds & values.keys():
        try:
            quotas[kind] = parse_quota(kind, values[kind])
        except ConfigError as error:
            log.error("%s: a quota has no effect: %s", path, error)
    return quotas
