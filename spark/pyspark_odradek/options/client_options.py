"""Client properties: options that begin with `kafka.`, and those of a property file or profile.

The source and the sink parse them with `ClientSettings`. Invariant: each one takes effect, or causes a warning or an
error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from odradek.base.errors import ConfigError
from odradek.client.config_files import CONFIG_VARIABLE, pod_login, read_config_file
from odradek.client.settings import ClientSettings
from odradek.client.settings import parse_address as check_address
from pyspark_odradek.options.option_values import CLIENT_PREFIX, OptionValues

FORBIDDEN: Final[Mapping[str, str]] = {
    "auto.offset.reset": "the options startingOffsets and endingOffsets say where to read",
    "key.deserializer": "keys arrive as bytes; convert them with DataFrame operations",
    "value.deserializer": "values arrive as bytes; convert them with DataFrame operations",
    "enable.auto.commit": "offsets live in the checkpoint and are never committed by themselves",
    "interceptor.classes": "classes of the JVM cannot run here",
}
"""Client properties that would break the source, and why."""

FETCH_BYTES: Final = 4 << 20
"""Default of `kafka.max.partition.fetch.bytes`, larger than that of Apache Kafka. A larger value would not be faster,
because the next range is fetched while one is decoded."""

DEFAULT_CLIENT_ID: Final = "spark-odradek-source"
"""Client id of a query without `kafka.client.id`, `kafka.group.id` and `groupIdPrefix`, which is the precedence."""

WITHOUT_EFFECT: Final = frozenset(
    """
    acks enable.idempotence linger.ms batch.size buffer.memory compression.type delivery.timeout.ms max.block.ms
    max.in.flight.requests.per.connection max.request.size retries transactional.id transaction.timeout.ms
    group.instance.id auto.commit.interval.ms max.poll.records max.poll.interval.ms session.timeout.ms
    heartbeat.interval.ms group.protocol group.remote.assignor exclude.internal.topics partition.assignment.strategy
    allow.auto.create.topics
    """.split()
)
"""Client properties of producers and of group members, which have no effect on the source; it logs a warning."""


def with_config_file(options: Mapping[str, str]) -> dict[str, str]:
    """Return options and, as `kafka.` options, the client properties of the file or profile of the option configFile.

    Without the option, the environment variable ODRADEK_COMMAND_CONFIG counts. Without both and without a security
    protocol, a pod that mounts a token for a cluster logs in as its ServiceAccount. Options come before the file.
    Raises `ConfigError` if the file cannot be read. It is read on the driver only.
    """
    given = {name.lower(): value for name, value in options.items()}
    if name := given.get("configfile") or os.environ.get(CONFIG_VARIABLE):
        file = read_config_file(name, option="configFile")
    else:
        file = {} if f"{CLIENT_PREFIX}security.protocol" in given else pod_login()
    return {**{f"{CLIENT_PREFIX}{key}": value for key, value in file.items()}, **given}


def source_client(values: OptionValues) -> tuple[ClientSettings, tuple[str, ...]]:
    """Return the client settings of the source, and a warning for each property without an effect there."""
    properties = values.client_properties()
    for name, reason in FORBIDDEN.items():
        if name in properties:
            raise ConfigError(f"{CLIENT_PREFIX}{name} is not allowed: {reason}")
    check_servers(properties)
    properties.setdefault("max.partition.fetch.bytes", str(FETCH_BYTES))
    # Nothing is read or committed through a group. Its name is the client id, as in the Java consumer, whose client id
    # begins with that of its group: brokers log it and apply quotas to it.
    name = properties.get("group.id") or values.text("groupIdPrefix") or DEFAULT_CLIENT_ID
    properties.setdefault("client.id", name)
    settings, warnings = ClientSettings.parse(properties)
    idle = sorted(properties.keys() & WITHOUT_EFFECT)
    warnings += [f"{name} has no effect: the source neither writes nor joins a group" for name in idle]
    return settings, tuple(f"{CLIENT_PREFIX}{warning}" for warning in warnings)


def check_servers(properties: Mapping[str, str]) -> None:
    """Raise `ConfigError` unless the client properties have valid addresses of brokers."""
    servers = properties.get("bootstrap.servers", "")
    if not servers.strip():
        raise ConfigError("the option kafka.bootstrap.servers is needed: a list of host:port with commas between")
    for server in servers.split(","):
        check_address(server.strip())
