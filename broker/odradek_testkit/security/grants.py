"""An authorizer for tests of requests of which a client may make a part."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from odradek.security.acls.model import OPERATIONS, AclOperation, ResourceType
from odradek.security.principals import Identity
from odradek_testkit.server import MemoryServer

MINE: Final = "mine"
SECRET: Final = "secret"
MY_ID: Final = UUID(int=1)
SECRET_ID: Final = UUID(int=2)


class Grants:
    """An authorizer that allows a set of operations, all on resources that are called `mine`, and on the cluster."""

    def __init__(self, *allowed: tuple[AclOperation, ResourceType]) -> None:
        self.allowed = set(allowed)
        self.generation: object = object()
        self.logged: list[str] = []

    def denied(
        self,
        identity: Identity,
        operation: AclOperation,
        kind: ResourceType,
        names: Iterable[str],
        request: str,
        *,
        is_logged: bool = True,
    ) -> frozenset[str]:
        if request in ("LeaderAndIsr", "UpdateMetadata"):
            return frozenset()  # These come from the controller.
        is_granted = (operation, kind) in self.allowed
        refused = frozenset(
            name for name in names if not (is_granted and (kind is ResourceType.CLUSTER or name == MINE))
        )
        if is_logged:
            self.logged += refused
        return refused

    def allows_any(self, identity: Identity, operation: AclOperation, kind: ResourceType, request: str) -> bool:
        return (operation, kind) in self.allowed

    def operations(self, identity: Identity, kind: ResourceType, name: str) -> int:
        return sum(
            1 << operation for operation in OPERATIONS[kind] if not self.denied(identity, operation, kind, (name,), "")
        )


async def two_topics(server: MemoryServer) -> None:
    """Announce a topic that the client may use, and one that it may not use."""
    await server.announce(MINE, {0: [1]}, topic_id=MY_ID)
    await server.announce(SECRET, {0: [1]}, topic_id=SECRET_ID)
