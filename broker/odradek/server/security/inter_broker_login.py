"""How a broker connects to the others: with the security of the inter-broker listener.

As in Kafka, the keystore of the listener is also the broker's certificate as a client, and the JAAS entry of its
mechanism (`listener.name.NAME.MECHANISM.sasl.jaas.config`) also has the credentials with which the broker logs in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek.base.errors import ConfigError
from odradek.base.ports import Clock, RunBlocking
from odradek.base.types import Endpoint
from odradek.network.channel_security import ChannelSecurity
from odradek.security.client_security import JAAS, ClientSecurity, login_of
from odradek.security.tls.tls_settings import TlsSettings
from odradek.server.security.listener_properties import ListenerProperties
from odradek.server.security.mechanisms import ENABLED

MECHANISM: Final = "sasl.mechanism.inter.broker.protocol"


def security_between_brokers(
    properties: Mapping[str, str], endpoint: Endpoint, clock: Clock, run_blocking: RunBlocking
) -> ChannelSecurity | None:
    """Return the security of connections to the inter-broker listener `endpoint` of other brokers; None for PLAINTEXT.

    Reads the keystores. Raises `ConfigError`.
    """
    protocol, name = endpoint.security_protocol, endpoint.listener
    uses_sasl = protocol.startswith("SASL")
    tls = None
    if protocol.endswith("SSL"):
        tls = TlsSettings.from_properties(properties, listener=name, uses_sasl=uses_sasl)
    elif not uses_sasl:
        return None
    new_exchange = None
    if uses_sasl:
        listener = ListenerProperties(properties, name)
        mechanism = str(listener.value(MECHANISM))
        enabled = listener.value(ENABLED)
        assert isinstance(enabled, tuple), "a list"
        if mechanism not in enabled:
            raise ConfigError(
                f"{MECHANISM}={mechanism} is not allowed: it must be one of {listener.name(ENABLED)}: "
                f"{', '.join(enabled)}"
            )
        new_exchange = login_of(
            listener.merged(mechanism),
            clock,
            mechanism,
            mechanism_setting=MECHANISM,
            jaas_setting=listener.own_name(JAAS, mechanism),
        )
    security = ClientSecurity(tls=tls, new_exchange=new_exchange)
    return ChannelSecurity(security, clock=clock, run_blocking=run_blocking)
