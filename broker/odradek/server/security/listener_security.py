"""Makes of the settings of a listener what its connections need: TLS contexts, and how a client gets its identity.

`app/listeners` calls it for each listener. All settings are checked when the broker starts, so that a client never
meets a listener that cannot work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from odradek.base.ports import Clock, RunBlocking
from odradek.base.types import Endpoint
from odradek.network.connection import Connection
from odradek.network.limited_log import LimitedLog
from odradek.network.listener import ListenerSecurity
from odradek.security.principals import ANONYMOUS, USER, Identity, Principal
from odradek.security.sasl.credentials import ScramMechanism
from odradek.security.tls.contexts import ReloadingContext, server_context
from odradek.security.tls.der import DerError
from odradek.security.tls.names import MAPPING_RULES, PrincipalRules, certificate_name
from odradek.security.tls.tls_settings import TlsSettings
from odradek.server.security.listener_properties import ListenerProperties
from odradek.server.security.login import DescribeVersions, Login, LoginSettings
from odradek.server.security.mechanisms import FindCredential, FindToken, mechanisms_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoginPorts:
    """What logins need of other parts of the broker."""

    find_credential: FindCredential
    find_token: FindToken
    describe_versions: DescribeVersions


def _nothing(_mechanism: ScramMechanism, _name: str) -> None:
    """There are no users and no tokens."""


class SecurityMaker:
    """Makes the `ListenerSecurity` of the listeners of one broker."""

    def __init__(
        self, properties: Mapping[str, str], clock: Clock, run_blocking: RunBlocking, ports: LoginPorts | None = None
    ) -> None:
        """`properties` are those of the file: security settings do not change while the broker runs. `run_blocking`
        reads changed keystores and key sets. Without `ports`, settings can be checked, but nobody can log in."""
        self._properties: Final = properties
        self._clock: Final = clock
        self._run_blocking: Final = run_blocking
        self._ports: Final = ports or LoginPorts(_nothing, _nothing, lambda _version, _request: {})

    def __call__(self, endpoint: Endpoint) -> ListenerSecurity:
        """Return the security of a listener. Reads its files. Raises `ConfigError`."""
        protocol = endpoint.security_protocol
        if protocol == "PLAINTEXT":
            return ListenerSecurity()
        properties = ListenerProperties(self._properties, endpoint.listener)
        if protocol != "SSL":
            return self._with_sasl(endpoint, properties)
        return ListenerSecurity(
            protocol=protocol,
            contexts=self._contexts(endpoint.listener, uses_sasl=False),
            begin=begin_with_certificate(PrincipalRules.parse(str(properties.value(MAPPING_RULES)))),
            handshake_timeout_ms=properties.number("connection.handshake.timeout.ms"),
        )

    def _with_sasl(self, endpoint: Endpoint, properties: ListenerProperties) -> ListenerSecurity:
        protocol = endpoint.security_protocol
        mechanisms = mechanisms_of(endpoint.listener, properties, self._ports.find_credential, self._ports.find_token)
        settings = LoginSettings(
            protocol=protocol,
            mechanisms=mechanisms.by_name,
            max_receive_bytes=properties.number("sasl.server.max.receive.size"),
            failed_delay_ms=properties.number("connection.failed.authentication.delay.ms"),
            timeout_ms=properties.number("connection.handshake.timeout.ms"),
        )
        background = mechanisms.background
        return ListenerSecurity(
            protocol=protocol,
            contexts=self._contexts(endpoint.listener, uses_sasl=True) if protocol == "SASL_SSL" else None,
            begin=self._begin_login(settings),
            handshake_timeout_ms=settings.timeout_ms,
            background=None if background is None else partial(background, self._clock, self._run_blocking),
        )

    def _begin_login(self, settings: LoginSettings) -> Callable[[Connection], None]:
        """Return how a connection of a listener with SASL begins: with a login."""
        clock, describe_versions = self._clock, self._ports.describe_versions
        log = LimitedLog(logger, clock)

        def begin(connection: Connection) -> None:
            Login(connection, settings, clock, describe_versions=describe_versions, log=log)

        return begin

    def _contexts(self, listener: str, *, uses_sasl: bool) -> ReloadingContext:
        settings = TlsSettings.from_properties(self._properties, listener=listener, uses_sasl=uses_sasl)
        return ReloadingContext(settings, server_context, clock=self._clock, run_blocking=self._run_blocking)


def begin_with_certificate(rules: PrincipalRules) -> Callable[[Connection], None]:
    """Return how a connection of a listener with the protocol SSL begins: its client is the subject of its certificate,
    or anonymous without one."""

    def begin(connection: Connection) -> None:
        certificate = connection.peer_certificate()
        try:
            principal = ANONYMOUS if certificate is None else _principal(rules, certificate)
        except (DerError, LookupError) as error:
            connection.counters.failed_authentications += 1
            connection.abort(str(error.args[0]))
            return
        connection.counters.authentications += 1
        connection.identity = Identity(principal, connection.peer_host, connection.listener, "SSL")

    return begin


def _principal(rules: PrincipalRules, certificate: bytes) -> Principal:
    """Return the principal of a certificate. Raises `DerError`, or `LookupError` if no rule matches."""
    subject = certificate_name(certificate)
    name = rules.apply(subject)
    if name is None:
        raise LookupError(f"no rule of {MAPPING_RULES} matches the certificate's name {subject!r:.200}")
    return Principal(USER, name)
