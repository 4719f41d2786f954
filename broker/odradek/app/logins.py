"""The security of a broker's listeners: keystores, key sets and users, from the check of the settings to the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from odradek.app.system import System
from odradek.base.config import BrokerConfig
from odradek.base.types import Endpoint
from odradek.network.channel_security import ChannelSecurity
from odradek.network.listener import Listener, ListenerSecurity
from odradek.security.tls.contexts import UsedCertificates
from odradek.server.security.inter_broker_login import security_between_brokers
from odradek.server.security.listener_security import LoginPorts, SecurityMaker
from odradek.server.security.login import DescribeVersions
from odradek.server.security.mechanisms import FindToken
from odradek.zk.port import ZkClient
from odradek.zk.users import UserCredentials


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsReport:
    """The certificates that the next connections of a broker use."""

    listeners: Mapping[str, UsedCertificates]
    """Of each listener with TLS."""
    client: UsedCertificates | None
    """Of connections to other brokers; None without TLS."""


class Logins:
    """Makes the security of each listener. It reads users from ZooKeeper if a listener authenticates with SASL."""

    def __init__(self, properties: Mapping[str, str], system: System, config: BrokerConfig) -> None:
        """Check the settings of the listeners, and read their files. Raises `ConfigError`."""
        self._properties: Final = properties
        self._clock: Final = system.clock
        self._threads: Final = system.disk_threads("keystores and key sets", 1)
        check = SecurityMaker(properties, self._clock, self._threads)
        for endpoint in config.listener_endpoints():
            check(endpoint)
        self.between_brokers: Final[ChannelSecurity | None] = security_between_brokers(
            properties, config.inter_broker_endpoint, self._clock, self._threads
        )
        """The security of connections to other brokers; None for PLAINTEXT."""
        self._users: UserCredentials | None = None
        self._maker = check

    def connect(self, zk: ZkClient, describe_versions: DescribeVersions, find_token: FindToken) -> None:
        """Give logins what they need. Call it once, before `secure`."""
        self._users = users = UserCredentials(zk, self._clock)
        ports = LoginPorts(users.credential, find_token, describe_versions)
        self._maker = SecurityMaker(self._properties, self._clock, self._threads, ports)

    def secure(self, endpoint: Endpoint) -> ListenerSecurity:
        """Return the security of a listener. Raises `ConfigError`."""
        if endpoint.security_protocol.startswith("SASL") and self._users is not None:
            self._users.want()
        return self._maker(endpoint)

    async def loaded(self) -> None:
        """Wait until the users are known, if a listener needs them."""
        if self._users is not None:
            await self._users.loaded()

    async def certificates(self, listeners: Iterable[Listener]) -> TlsReport:
        """Return the certificates that the next connections use: those of listeners, and those to other brokers."""
        found = {listener.name: await listener.certificates() for listener in listeners}
        between = self.between_brokers
        return TlsReport(
            listeners={name: used for name, used in found.items() if used is not None},
            client=None if between is None else await between.certificates(),
        )

    def user_changed(self, entity: str) -> None:
        """A user in ZooKeeper was changed: `entity` is its path below `/config/users`."""
        if self._users is not None:
            self._users.changed(entity)

    async def close(self) -> None:
        """End all background work. Idempotent."""
        self._threads.close()
        if self._users is not None:
            await self._users.close()
