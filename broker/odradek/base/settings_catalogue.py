"""Settings of Apache Kafka 3.9 that have no effect here, and those of them that are rejected.

A configuration made for Kafka contains settings for things that this broker does differently (thread pools) or does not
do (KRaft, TLS, tiered storage). They are accepted, stored and described with Kafka's types, so that Kafka's tools work.
The exception is a setting that users rely on, such as a policy: ignoring it would be dangerous, so it is rejected by
name. `base/config` looks up settings here after its own. A test in `tests/interop` compares both with Kafka's classes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from odradek.base.errors import ConfigError
from odradek.base.setting_definitions import Setting, SettingType, Update

NO_EFFECT: Final = "A setting of Apache Kafka that has no effect on this broker."

_BROKER: Final = """
alter.config.policy.class.name CLASS read-only
alter.log.dirs.replication.quota.window.num INT read-only 11
alter.log.dirs.replication.quota.window.size.seconds INT read-only 1
auto.include.jmx.reporter BOOLEAN read-only true
background.threads INT cluster-wide 10
broker.heartbeat.interval.ms INT read-only 2000
broker.id.generation.enable BOOLEAN read-only true
broker.session.timeout.ms INT read-only 9000
client.quota.callback.class CLASS read-only
controller.listener.names STRING read-only
controller.quorum.append.linger.ms INT read-only 25
controller.quorum.bootstrap.servers LIST read-only ""
controller.quorum.election.backoff.max.ms INT read-only 1000
controller.quorum.election.timeout.ms INT read-only 1000
controller.quorum.fetch.timeout.ms INT read-only 2000
controller.quorum.request.timeout.ms INT read-only 2000
controller.quorum.retry.backoff.ms INT read-only 20
controller.quorum.voters LIST read-only ""
controller.socket.timeout.ms INT read-only 30000
create.topic.policy.class.name CLASS read-only
early.start.listeners STRING read-only
eligible.leader.replicas.enable BOOLEAN read-only false
group.coordinator.append.linger.ms INT read-only 10
group.coordinator.threads INT read-only 1
group.share.delivery.count.limit INT read-only 5
group.share.heartbeat.interval.ms INT read-only 5000
group.share.max.groups SHORT read-only 10
group.share.max.heartbeat.interval.ms INT read-only 15000
group.share.max.record.lock.duration.ms INT read-only 60000
group.share.max.session.timeout.ms INT read-only 60000
group.share.max.size SHORT read-only 200
group.share.min.heartbeat.interval.ms INT read-only 5000
group.share.min.record.lock.duration.ms INT read-only 15000
group.share.min.session.timeout.ms INT read-only 45000
group.share.partition.max.record.locks INT read-only 200
group.share.record.lock.duration.ms INT read-only 30000
group.share.session.timeout.ms INT read-only 45000
kafka.metrics.polling.interval.secs INT read-only 10
kafka.metrics.reporters LIST read-only ""
log.dir.failure.timeout.ms LONG read-only 30000
log.local.retention.bytes LONG cluster-wide -2
log.local.retention.ms LONG cluster-wide -2
max.connections.per.ip.overrides STRING cluster-wide ""
max.request.partition.size.limit INT read-only 2000
metadata.log.dir STRING read-only
metadata.log.max.record.bytes.between.snapshots LONG read-only 20971520
metadata.log.max.snapshot.interval.ms LONG read-only 3600000
metadata.log.segment.bytes INT read-only 1073741824
metadata.log.segment.ms LONG read-only 604800000
metadata.max.idle.interval.ms INT read-only 500
metadata.max.retention.bytes LONG read-only 104857600
metadata.max.retention.ms LONG read-only 604800000
metric.reporters LIST cluster-wide ""
metrics.num.samples INT read-only 2
metrics.recording.level STRING read-only INFO
metrics.sample.window.ms LONG read-only 30000
node.id INT read-only -1
num.io.threads INT cluster-wide 8
num.network.threads INT cluster-wide 3
offsets.commit.required.acks SHORT read-only -1
offsets.topic.compression.codec INT read-only 0
password.encoder.cipher.algorithm STRING read-only AES/CBC/PKCS5Padding
password.encoder.iterations INT read-only 4096
password.encoder.key.length INT read-only 128
password.encoder.keyfactory.algorithm STRING read-only
password.encoder.old.secret PASSWORD read-only
password.encoder.secret PASSWORD read-only
principal.builder.class CLASS per-broker org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
process.roles LIST read-only ""
queued.max.requests INT read-only 500
remote.fetch.max.wait.ms INT cluster-wide 500
remote.log.index.file.cache.total.size.bytes LONG cluster-wide 1073741824
remote.log.manager.copier.thread.pool.size INT read-only -1
remote.log.manager.copy.max.bytes.per.second LONG cluster-wide 9223372036854775807
remote.log.manager.copy.quota.window.num INT read-only 11
remote.log.manager.copy.quota.window.size.seconds INT read-only 1
remote.log.manager.expiration.thread.pool.size INT read-only -1
remote.log.manager.fetch.max.bytes.per.second LONG cluster-wide 9223372036854775807
remote.log.manager.fetch.quota.window.num INT read-only 11
remote.log.manager.fetch.quota.window.size.seconds INT read-only 1
remote.log.manager.task.interval.ms LONG read-only 30000
remote.log.manager.thread.pool.size INT read-only 10
remote.log.metadata.custom.metadata.max.bytes INT read-only 128
remote.log.metadata.manager.class.name STRING read-only \
org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.class.path STRING read-only
remote.log.metadata.manager.impl.prefix STRING read-only rlmm.config.
remote.log.metadata.manager.listener.name STRING read-only
remote.log.reader.max.pending.tasks INT read-only 100
remote.log.reader.threads INT read-only 10
remote.log.storage.manager.class.name STRING read-only
remote.log.storage.manager.class.path STRING read-only
remote.log.storage.manager.impl.prefix STRING read-only rsm.config.
remote.log.storage.system.enable BOOLEAN read-only false
replica.socket.receive.buffer.bytes INT read-only 65536
reserved.broker.max.id INT read-only 1000
sasl.client.callback.handler.class CLASS read-only
sasl.kerberos.kinit.cmd STRING per-broker /usr/bin/kinit
sasl.kerberos.min.time.before.relogin LONG per-broker 60000
sasl.kerberos.principal.to.local.rules LIST per-broker DEFAULT
sasl.kerberos.service.name STRING per-broker
sasl.kerberos.ticket.renew.jitter DOUBLE per-broker 0.05
sasl.kerberos.ticket.renew.window.factor DOUBLE per-broker 0.8
sasl.login.callback.handler.class CLASS read-only
sasl.login.class CLASS read-only
sasl.login.refresh.buffer.seconds SHORT per-broker 300
sasl.login.refresh.min.period.seconds SHORT per-broker 60
sasl.login.refresh.window.factor DOUBLE per-broker 0.8
sasl.login.refresh.window.jitter DOUBLE per-broker 0.05
sasl.login.retry.backoff.max.ms LONG read-only 10000
sasl.login.retry.backoff.ms LONG read-only 100
sasl.mechanism.controller.protocol STRING read-only GSSAPI
sasl.server.callback.handler.class CLASS read-only
security.providers STRING read-only
socket.connection.setup.timeout.max.ms LONG read-only 30000
socket.connection.setup.timeout.ms LONG read-only 10000
ssl.allow.dn.changes BOOLEAN read-only false
ssl.allow.san.changes BOOLEAN read-only false
ssl.engine.factory.class CLASS per-broker
ssl.keymanager.algorithm STRING per-broker SunX509
ssl.provider STRING per-broker
ssl.secure.random.implementation STRING per-broker
ssl.trustmanager.algorithm STRING per-broker PKIX
telemetry.max.bytes INT read-only 1048576
zookeeper.metadata.migration.enable BOOLEAN read-only false
"""
"""Name, type, how the setting can change in Kafka, and default; without a default it is null."""

_INTERNAL: Final = """
group.coordinator.new.enable BOOLEAN read-only false
group.share.enable BOOLEAN read-only false
metadata.log.segment.min.bytes INT read-only 8388608
producer.id.expiration.check.interval.ms INT read-only 600000
remote.log.manager.task.retry.backoff.max.ms LONG read-only 30000
remote.log.manager.task.retry.backoff.ms LONG read-only 500
remote.log.manager.task.retry.jitter DOUBLE read-only 0.2
server.max.startup.time.ms LONG read-only 9223372036854775807
unclean.leader.election.interval.ms LONG read-only 300000
unstable.api.versions.enable BOOLEAN read-only false
unstable.feature.versions.enable BOOLEAN read-only false
zookeeper.metadata.migration.min.batch.size INT read-only 200
"""
"""The same for settings that Kafka's documentation and DescribeConfigs omit while they are not set."""

_TOPIC: Final = """
local.retention.bytes LONG -2
local.retention.ms LONG -2
remote.log.copy.disable BOOLEAN false
remote.log.delete.on.disable BOOLEAN false
remote.storage.enable BOOLEAN false
"""
"""Name, type, default."""

_BROKERS_DEFAULT: Final = {
    "local.retention.bytes": "log_local_retention_bytes",
    "local.retention.ms": "log_local_retention_ms",
}
"""The broker attribute with the default of a topic setting, as in `Setting.broker`."""

_BOUNDS: Final = {SettingType.SHORT: 2**15, SettingType.INT: 2**31, SettingType.LONG: 2**63}


def _declared(name: str, kind: str, update: Update, default: str | None) -> Setting:
    bound = _BOUNDS.get(SettingType[kind])
    setting = Setting(
        name=name,
        attribute=name.replace(".", "_"),
        kind=SettingType[kind],
        default=None,
        documentation=NO_EFFECT,
        low=None if bound is None else -bound,
        high=None if bound is None else bound - 1,
        dynamic=update,
        sensitive=SettingType[kind] is SettingType.PASSWORD,
        broker=_BROKERS_DEFAULT.get(name, ""),
    )
    if default is None:
        return setting
    return replace(setting, default=setting.parse("" if default == '""' else default))


def _rows(table: str) -> Iterator[list[str]]:
    return (line.split() for line in table.strip().splitlines())


def _broker_settings(table: str) -> dict[str, Setting]:
    return {
        name: _declared(name, kind, Update(update), default[0] if default else None)
        for name, kind, update, *default in _rows(table)
    }


INTERNAL_SETTINGS: Final[Mapping[str, Setting]] = _broker_settings(_INTERNAL)
"""Broker settings without an effect here that DescribeConfigs shows only if they are set."""
IDLE_BROKER_SETTINGS: Final[Mapping[str, Setting]] = {**_broker_settings(_BROKER), **INTERNAL_SETTINGS}
"""All broker settings of Kafka that have no effect here."""
IDLE_TOPIC_SETTINGS: Final[Mapping[str, Setting]] = {
    name: _declared(name, kind, Update.CLUSTER_WIDE, default) for name, kind, default in _rows(_TOPIC)
}
"""All topic settings of Kafka that have no effect here."""

_OF_LISTENER: Final = re.compile(r"listener\.name\.[^.]+\.(.+)")
_OF_MECHANISM: Final = re.compile(
    r"[^.]+\.(sasl\.jaas\.config|sasl\.login\.callback\.handler\.class|sasl\.login\.class"
    r"|sasl\.server\.callback\.handler\.class|connections\.max\.reauth\.ms)"
)
"""Settings of one SASL mechanism of a listener, such as `listener.name.NAME.MECHANISM.sasl.jaas.config`."""


def without_listener(name: str) -> str:
    """Return the SETTING of `listener.name.NAME.SETTING` or `listener.name.NAME.MECHANISM.SETTING`.

    Any other name is returned unchanged.
    """
    of_listener = _OF_LISTENER.fullmatch(name)
    if of_listener is None:
        return name
    of_mechanism = _OF_MECHANISM.fullmatch(of_listener[1])
    return of_mechanism[1] if of_mechanism else of_listener[1]


def listener_of(name: str) -> str:
    """Return the NAME of `listener.name.NAME.SETTING`, in lower case as it must be; empty for any other name."""
    found = _OF_LISTENER.fullmatch(name)
    return name.split(".")[2] if found else ""


class _Refusal(NamedTuple):
    """Why a setting is rejected, and the values that are accepted because they enable nothing."""

    reason: str
    harmless: frozenset[str] = frozenset({""})


_OAUTHBEARER: Final = "org.apache.kafka.common.security.oauthbearer"
_OFF: Final = frozenset({"", "false"})
_JAVA_CLASS: Final = "it names a Java class, which this broker cannot run: remove it"
_REFUSED: Final[Mapping[str, _Refusal]] = {
    "alter.config.policy.class.name": _Refusal(f"changes of settings would not be checked; {_JAVA_CLASS}"),
    "client.quota.callback.class": _Refusal(f"client quotas would not apply; {_JAVA_CLASS}"),
    "create.topic.policy.class.name": _Refusal(f"new topics would not be checked; {_JAVA_CLASS}"),
    "kafka.metrics.reporters": _Refusal(
        f"metrics would not be reported; {_JAVA_CLASS}, and scrape metrics.port instead"
    ),
    "metric.reporters": _Refusal(
        f"metrics would not be reported; {_JAVA_CLASS}, and scrape metrics.port instead",
        frozenset({"", "org.apache.kafka.common.metrics.JmxReporter"}),
    ),
    "principal.builder.class": _Refusal(
        _JAVA_CLASS,
        frozenset({"", "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"}),
    ),
    "process.roles": _Refusal("this broker uses ZooKeeper and does not support KRaft: remove it"),
    "remote.log.storage.system.enable": _Refusal(
        "tiered storage is not supported, so all records stay on this broker's disks: remove it", _OFF
    ),
    "sasl.client.callback.handler.class": _Refusal(_JAVA_CLASS),
    "sasl.login.callback.handler.class": _Refusal(_JAVA_CLASS),
    "sasl.login.class": _Refusal(_JAVA_CLASS),
    "sasl.server.callback.handler.class": _Refusal(
        _JAVA_CLASS,
        # The verification of tokens is that of this class.
        frozenset({"", *(f"{_OAUTHBEARER}.{each}OAuthBearerValidatorCallbackHandler" for each in ("", "secured."))}),
    ),
    "security.providers": _Refusal(_JAVA_CLASS),
    "ssl.engine.factory.class": _Refusal(
        _JAVA_CLASS, frozenset({"", "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory"})
    ),
    "zookeeper.metadata.migration.enable": _Refusal(
        "this broker supports ZooKeeper only: remove it, or complete the migration with Apache Kafka's brokers",
        _OFF,
    ),
}
"""Broker settings that are rejected: users rely on them, so it would be dangerous to ignore them."""

_REFUSED_FOR_TOPICS: Final[Mapping[str, _Refusal]] = {
    "remote.log.copy.disable": _Refusal("it needs tiered storage, which is not supported: remove it", _OFF),
    "remote.log.delete.on.disable": _Refusal("it needs tiered storage, which is not supported: remove it", _OFF),
    "remote.storage.enable": _Refusal(
        "tiered storage is not supported, so all records stay on the brokers' disks: remove it", _OFF
    ),
}


def idle_broker_setting(name: str) -> Setting | None:
    """Return the declaration of a broker setting of Kafka that has no effect here; None for any other name.

    Accepts the name of a setting of one listener, too.
    """
    return IDLE_BROKER_SETTINGS.get(without_listener(name))


def check_allowed(name: str, value: str) -> None:
    """Raise `ConfigError` if a broker setting is rejected. The message has the reason and what to do."""
    _check(name, value, _REFUSED.get(without_listener(name)))


def check_allowed_for_topic(name: str, value: str) -> None:
    """Raise `ConfigError` if a topic setting is rejected. The message has the reason and what to do."""
    _check(name, value, _REFUSED_FOR_TOPICS.get(name))


def _check(name: str, value: str, refusal: _Refusal | None) -> None:
    if refusal is None:
        return
    parts = {part.strip() for part in value.split(",")}
    if not parts <= refusal.harmless and value.strip().lower() not in refusal.harmless:
        raise ConfigError(f"{name}={value} is not supported: {refusal.reason}")
