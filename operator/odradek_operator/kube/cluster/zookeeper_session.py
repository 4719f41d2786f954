"""The operator's connections to the ZooKeeper ensemble of one cluster.

`ZooKeeperSession` is opened when it is first needed; its watches only wake the loop. `ask_members` asks each member for
its role with the four-letter word `mntr`, while members are missing or have to be restarted. Both use the certificate
of the operator once the ensemble accepts TLS.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from odradek.security.tls.contexts import client_context
from odradek.security.tls.stores import PemKeyText, PemTrustText
from odradek.security.tls.tls_settings import TlsSettings
from odradek.zk.kazoo_client import KazooZkClient
from odradek.zk.layout import BROKER_IDS, CONTROLLER, DELETE_TOPICS, REASSIGN_PARTITIONS, TOPICS
from odradek.zk.port import SessionState, ZkClient, ZkError, ZkSettings
from odradek_operator.crds.types import Cluster
from odradek_operator.ensemble.four_letter_words import NoAnswerError, ask
from odradek_operator.ensemble.mntr import parse
from odradek_operator.lifecycle.observed_cluster import LEADER, Quorum
from odradek_operator.objects import ensemble_security, names
from odradek_operator.objects.cluster_properties import zookeeper_connect

TIMEOUT_SECONDS: Final = 3.0
"""Maximum seconds to wait for the answer of a member."""
_CONNECT_MS = 8_000
_SESSION_MS = 15_000
_SUSPENDED_MS = 4_000


Opener = Callable[[ZkSettings], Awaitable[ZkClient]]
"""Returns a connected client, or raises `ZkError`."""


async def open_kazoo(settings: ZkSettings) -> ZkClient:
    """Return a client for a real ensemble."""
    client = KazooZkClient(settings)
    try:
        await client.start()
    except BaseException:
        await client.close()
        raise
    return client


class ZooKeeperSession:
    """The ZooKeeper session of one cluster's loop."""

    def __init__(self, wake: Callable[[], None], opened: Opener) -> None:
        """`wake` is called when brokers, topics, the controller or reassignments change."""
        self._wake = wake
        self._opened = opened
        self._settings: ZkSettings | None = None
        self._client: ZkClient | None = None

    async def client(self, settings: ZkSettings) -> ZkClient:
        """Return the client connected with these settings. Raises `ZkError` if ZooKeeper does not answer in time."""
        if self._client is not None and (settings != self._settings or self._client.state is SessionState.CLOSED):
            await self.close()
        if self._client is None:
            client = await self._opened(settings)
            client.watch_children(BROKER_IDS, self._wake)
            client.watch_children(TOPICS, self._wake)
            client.watch_children(DELETE_TOPICS, self._wake)
            client.watch_data(CONTROLLER, self._wake)
            client.watch_data(REASSIGN_PARTITIONS, self._wake)
            self._settings, self._client = settings, client
        return self._client

    async def close(self) -> None:
        """Close the session. Idempotent."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def session_settings(cluster: Cluster, identity: Mapping[str, bytes] | None) -> ZkSettings:
    """Return the settings of the operator's session with the ensemble of a cluster.

    `identity`: the Secret of the operator's certificate. Raises `ZkError` if the ensemble needs it and it is None.
    """
    return ZkSettings(
        connect=zookeeper_connect(cluster),
        session_timeout_ms=_SESSION_MS,
        connection_timeout_ms=_CONNECT_MS,
        suspended_wait_ms=_SUSPENDED_MS,
        tls=_tls(cluster, identity),
        set_acl=cluster.ensemble_link.is_closed,
        owner=ensemble_security.owner(cluster) if cluster.ensemble_link.is_closed else None,
    )


def _tls(cluster: Cluster, identity: Mapping[str, bytes] | None) -> TlsSettings | None:
    if not cluster.ensemble_link.connects_tls:
        return None
    if identity is None:
        raise ZkError("ZooKeeper requires TLS, but the operator has no certificate of the cluster")
    pem, trusted = identity[names.OPERATOR_KEYSTORE].decode(), identity[names.CLUSTER_CA_FILE].decode()
    setting = f"Secret {names.operator_certs(cluster.name)}: ssl."
    return TlsSettings(
        prefix=setting,
        keystore=PemKeyText(setting=f"{setting}keystore", key=pem, chain=pem),
        truststore=PemTrustText(setting=f"{setting}truststore", certificates=trusted),
    )


AskMembers = Callable[[Mapping[int, str], int, TlsSettings | None], Awaitable[Quorum]]
"""Asks members: their hosts, the port, and the TLS of the connections."""


async def ask_members(
    hosts: Mapping[int, str], port: int = names.ZOOKEEPER_CLIENT_PORT, tls: TlsSettings | None = None
) -> Quorum:
    """Return the roles that members report. Members that do not answer in time, or do not serve, are missing."""
    context = None if tls is None else client_context(tls)
    answers = await asyncio.gather(*(_variables(host, port, context) for host in hosts.values()))
    by_member = dict(zip(hosts, answers, strict=True))
    modes = {member: state for member, one in by_member.items() if (state := one.get("zk_server_state"))}
    counts = [by_member[member].get("zk_synced_followers", "") for member, mode in modes.items() if mode == LEADER]
    return Quorum(modes=modes, followers=int(counts[0]) if len(counts) == 1 and counts[0].isdecimal() else None)


async def _variables(host: str, port: int, tls: ssl.SSLContext | None) -> dict[str, str]:
    """Return the variables in a member's answer to `mntr`; empty if it does not answer."""
    try:
        return parse(await ask(host, port, "mntr", timeout_seconds=TIMEOUT_SECONDS, tls=tls))
    except NoAnswerError:
        return {}
