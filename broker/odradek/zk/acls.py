"""All access rules of the cluster, in memory: requests are decided without waiting for ZooKeeper.

`AccessRules.index` is replaced as a whole with each change. The follower reads what the notifications below
`RULE_CHANGES` name; after a lost connection it reads everything again. Changes are compare-and-set loops, each together
with its notification in one transaction, so Kafka's brokers and tools see them, and the other way round.

Invariants:
- While ZooKeeper does not answer, the last state holds.
- A znode that cannot be decoded may have contained DENY rules. Until it is repaired, only super users may use the
  resources of its pattern: it counts as one rule that denies everyone everything. All other rules are unaffected.
- After `change` has returned, `index` has the change, or a later one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from odradek.base.ports import Clock
from odradek.security.acls.index import AclIndex
from odradek.security.acls.model import AclOperation, AclPermission, AclRule, ResourcePattern
from odradek.security.acls.nodes import (
    RESOURCE_TYPES,
    RULE_CHANGE_PREFIX,
    RULE_CHANGES,
    RULE_PATHS,
    RULE_STORES,
    decode_rule_change,
    decode_rules,
    encode_rule_change,
    encode_rules,
    parse_resource_path,
    resource_path,
    rules_path,
)
from odradek.security.principals import EVERYONE
from odradek.zk.follower import Follower, Notifications
from odradek.zk.port import (
    BadVersion,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    ZkClient,
)
from odradek.znode import LayoutError

log = logging.getLogger(__name__)

ATTEMPTS: Final = 10
"""Number of times that a change is tried while others change the same znode, as in Kafka."""

UNREADABLE: Final = frozenset({AclRule(EVERYONE, AclPermission.DENY, AclOperation.ALL)})
"""The rules of a pattern whose znode cannot be decoded."""

_Rules = frozenset[AclRule]


class AccessRules:
    """The rules of all patterns. `index` is empty before `start`."""

    def __init__(self, zk: ZkClient, clock: Clock) -> None:
        """Create it. The client may be unconnected."""
        self._zk = zk
        self.index = AclIndex()
        """The rules at one time. Each change replaces it."""
        self._notifications = Notifications(zk, clock, list(RULE_CHANGES.values()))
        self._follower = Follower(zk, clock, "access rules", self._read_new)
        self._reading = asyncio.Lock()
        """Reads and what they change in `index` are in the same order."""

    async def start(self) -> None:
        """Create the znodes that Kafka's authorizer creates, read all rules, and follow their changes from now on.

        Raises `ZkError`.
        """
        for path in RULE_PATHS:
            await self._zk.ensure_path(path)
        self._follower.listen(dict.fromkeys(RULE_CHANGES.values(), self._follower.wake))
        await self._read_new()
        self._follower.run()

    async def close(self) -> None:
        """Stop following. Idempotent."""
        await self._follower.close()

    async def change(
        self, resource: ResourcePattern, *, add: Collection[AclRule] = (), remove: Collection[AclRule] = ()
    ) -> None:
        """Change the rules of a pattern as `change_rules`, and have the change in `index` afterwards."""
        await change_rules(self._zk, resource, add=add, remove=remove)
        async with self._reading:
            await self._read([resource])

    # Following

    async def _read_new(self) -> None:
        """Read the patterns that new notifications name, or everything."""
        found = await self._notifications.new()
        async with self._reading:
            if self._follower.take_all():
                await self._read_all()
            else:
                await self._read(self._named_by(found))
        await self._notifications.handled()

    def _named_by(self, found: Mapping[str, bytes | None]) -> list[ResourcePattern]:
        """Return the patterns in notifications. If one is missing or invalid, everything is read next."""
        patterns: dict[ResourcePattern, None] = {}
        for path, data in found.items():
            try:
                if data is None:
                    raise LayoutError(path, "another broker has deleted it")
                patterns[decode_rule_change(path, data)] = None
            except LayoutError as error:
                log.warning("all access rules are read, because a notification cannot be: %s", error)
                self._follower.want_all()
        return list(patterns)

    async def _read_all(self) -> None:
        folders = [rules_path(kind, pattern) for pattern in RULE_STORES for kind in RESOURCE_TYPES]
        names = await self._zk.children_many(folders)
        paths = [f"{folder}/{name}" for folder in folders for name in names[folder] or ()]
        found = await self._zk.get_many(paths)
        self.index = AclIndex.of(
            {parse_resource_path(path): _decoded(path, node[0]) for path, node in found.items() if node is not None}
        )

    async def _read(self, patterns: Iterable[ResourcePattern]) -> None:
        paths = {}
        for pattern in patterns:
            try:
                paths[resource_path(pattern)] = pattern
            except LayoutError as error:
                log.error("a notification names a resource that cannot have access rules: %s", error)
        index = self.index
        for path, node in (await self._zk.get_many(list(paths))).items():
            index = index.with_rules(paths[path], frozenset() if node is None else _decoded(path, node[0]))
        self.index = index


async def change_rules(
    zk: ZkClient, resource: ResourcePattern, *, add: Collection[AclRule] = (), remove: Collection[AclRule] = ()
) -> None:
    """Add rules to a pattern and remove others, in one transaction. Writes nothing if that changes nothing.

    The paths of `RULE_PATHS` must exist. Raises `LayoutError` if no znode can have this name or the znode cannot be
    decoded, and `ZkError`, which leaves it open whether the change was made.
    """
    path = resource_path(resource)
    for _ in range(ATTEMPTS):
        found = await zk.get_or_none(path)
        before = decode_rules(path, found[0]) if found is not None else frozenset()
        after = (before | frozenset(add)) - frozenset(remove)
        if after == before:
            return
        version = None if found is None else found[1].version
        try:
            await zk.multi([_write(path, after, version), _notification(resource)])
            return
        except (BadVersion, NodeExists, NoNode):
            continue
    raise BadVersion(f"other changes came first {ATTEMPTS} times: try again", path)


def _decoded(path: str, data: bytes) -> _Rules:
    try:
        return decode_rules(path, data)
    except LayoutError as error:
        log.error(
            "access rules cannot be decoded: only super users may use the resources of this pattern. Repair or delete "
            "the znode, then add a rule to this pattern or restart the brokers: %s",
            error,
        )
        return UNREADABLE


def _write(path: str, rules: _Rules, version: int | None) -> Operation:
    """Return the operation that replaces the rules that were read. `version` None: there was no znode."""
    if version is None:
        return Create(path, encode_rules(rules))
    return SetData(path, encode_rules(rules), version) if rules else Delete(path, version)


def _notification(resource: ResourcePattern) -> Operation:
    parent = RULE_CHANGES[resource.pattern]
    return Create(f"{parent}/{RULE_CHANGE_PREFIX}", encode_rule_change(resource), sequential=True)
