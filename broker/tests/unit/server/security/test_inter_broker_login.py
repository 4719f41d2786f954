"""The security of connections between brokers, from the settings of their listener."""

from __future__ import annotations

import asyncio

import pytest

from odradek.base.config import BrokerConfig
from odradek.base.errors import ConfigError
from odradek.base.system_ports import SystemClock
from odradek.network.channel_security import ChannelSecurity
from odradek.security.sasl.plain import LOGIN_MODULE
from odradek.server.security.inter_broker_login import security_between_brokers

NEEDED = {"broker.id": "1", "zookeeper.connect": "z:1"}
ENTRY = f'{LOGIN_MODULE} required username="broker" password="hunter2" user_broker="hunter2";'
SASL = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.x.plain.sasl.jaas.config": ENTRY,
}


def security(protocol: str, **properties: str) -> ChannelSecurity | None:
    values = {**NEEDED, "listeners": "X://:9092", "listener.security.protocol.map": f"X:{protocol}", **properties}
    config, warnings = BrokerConfig.parse(values)
    assert warnings == []
    return security_between_brokers(values, config.inter_broker_endpoint, SystemClock(), asyncio.to_thread)


def test_plaintext_needs_nothing() -> None:
    assert security("PLAINTEXT") is None


@pytest.mark.parametrize(("protocol", "has_login"), [("SSL", False), ("SASL_PLAINTEXT", True), ("SASL_SSL", True)])
async def test_the_protocol_decides(protocol: str, has_login: bool) -> None:
    found = security(protocol, **SASL)
    assert found is not None
    assert found.has_login == has_login
    assert (await found.context() is not None) == protocol.endswith("SSL")


async def test_the_overrides_of_the_listener_apply() -> None:
    verifying = security("SSL")
    trusting = security("SSL", **{"listener.name.x.ssl.endpoint.identification.algorithm": ""})
    assert verifying is not None
    assert trusting is not None
    contexts = await verifying.context(), await trusting.context()
    assert [context is not None and context.check_hostname for context in contexts] == [True, False]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            {"sasl.mechanism.inter.broker.protocol": "GSSAPI"},
            r"sasl\.mechanism\.inter\.broker\.protocol=GSSAPI is not allowed: .* SCRAM-SHA-256, PLAIN",
        ),
        (
            {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"},
            r"listener\.name\.x\.scram-sha-256\.sasl\.jaas\.config is missing",
        ),
        (
            {"listener.name.x.plain.sasl.jaas.config": f'{LOGIN_MODULE} required user_broker="hunter2";'},
            r"listener\.name\.x\.plain\.sasl\.jaas\.config must have the options username and password",
        ),
    ],
)
def test_errors_name_the_property(changed: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as caught:
        security("SASL_SSL", **{**SASL, **changed})
    assert "hunter2" not in str(caught.value)


def test_the_protocol_can_name_the_listener() -> None:
    values = {**NEEDED, "listeners": "PLAINTEXT://:1,SSL://:2", "security.inter.broker.protocol": "SSL"}
    config, warnings = BrokerConfig.parse(values)
    assert (config.inter_broker_listener, warnings) == ("SSL", [])
    with pytest.raises(ConfigError, match=r"security\.inter\.broker\.protocol='SASL_SSL' is not among listeners"):
        BrokerConfig.parse({**values, "security.inter.broker.protocol": "SASL_SSL"})
    with pytest.raises(ConfigError, match="only one of them"):
        BrokerConfig.parse({**values, "inter.broker.listener.name": "SSL"})
    with pytest.raises(ConfigError, match=r"listener\.security\.protocol\.map must keep the protocol of SSL"):
        config.with_dynamic({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SASL_SSL"})
