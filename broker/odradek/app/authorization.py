"""The authorization of a broker: from its settings and the access rules in ZooKeeper to the guards of its handlers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek.base.config import BrokerConfig
from odradek.base.errors import ConfigError
from odradek.base.ports import Clock
from odradek.cluster import MetadataCache
from odradek.protocol.apis import ApiKey
from odradek.security.principals import parse_principals
from odradek.server.authorization.authorizer import AclAuthorizer, Authorizer
from odradek.server.authorization.guards import guarded
from odradek.server.authorization.required import GUARDS
from odradek.server.dispatch import Handler
from odradek.server.security.acl_handlers import AclHandlers
from odradek.zk.acls import AccessRules
from odradek.zk.port import ZkClient


class Authorization:
    """Decides about the requests of clients if `authorizer.class.name` is set. Otherwise everyone may do everything."""

    def __init__(self, config: BrokerConfig, zk: ZkClient, clock: Clock) -> None:
        """The client of ZooKeeper may be unconnected. Raises `ConfigError`."""
        self.rules: Final = AccessRules(zk, clock) if config.authorizer_class_name else None
        self.authorizer: Final = None if self.rules is None else _authorizer(config, self.rules)

    async def start(self) -> None:
        """Read the access rules. No request may be served before. Raises `ZkError`."""
        if self.rules is not None:
            await self.rules.start()

    async def close(self) -> None:
        """Stop following the rules. Idempotent."""
        if self.rules is not None:
            await self.rules.close()

    def secured(self, handlers: Mapping[ApiKey, Handler], view: MetadataCache) -> Mapping[ApiKey, Handler]:
        """Return these handlers and those of the access rules, behind the checks of what their clients may do."""
        every = {**handlers, **AclHandlers(self.rules).handlers()}
        if self.authorizer is None:
            return every
        return guarded(every, GUARDS, self.authorizer, lambda: view.image)


def _authorizer(config: BrokerConfig, rules: AccessRules) -> Authorizer:
    try:
        super_users = parse_principals(config.super_users or "")
    except ConfigError as error:
        raise ConfigError(f"super.users: {error}") from error
    return AclAuthorizer(
        rules,
        super_users=super_users,
        allows_without_rules=config.allow_everyone_if_no_acl_found,
    )
