"""Which certificates the brokers of a cluster use, from `/tls` of their metrics ports.

`cluster_secrets` asks them while a certificate authority is being replaced. A broker that does not answer, or that is
of a version without `/tls`, has reported nothing, which holds the next step back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import aiohttp

from odradek_operator.crds.types import TLS_LOGIN, Cluster
from odradek_operator.lifecycle.observed_cluster import KubernetesState
from odradek_operator.objects import names, slots
from odradek_operator.objects.properties_file import certificates_digest
from odradek_operator.security.rotation import PodTrust
from odradek_operator.security.stored_authority import StoredAuthority

ASK_SECONDS: Final = 5.0
"""Time for the answer of a broker."""
_MAX_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedFiles:
    """The certificates of a listener, or of the connections to other brokers, by their fingerprints."""

    chain: tuple[str, ...]
    """The own certificate and its issuers."""
    trusted: frozenset[str]

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Read a part of a report. Raises `KeyError` or `TypeError` if it is none."""
        return cls(chain=tuple(map(str, document["chain"])), trusted=frozenset(map(str, document["trusted"])))


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsReport:
    """What a broker uses."""

    listeners: Mapping[str, UsedFiles]
    """By the name of the listener, in lower case."""
    client: UsedFiles | None

    @classmethod
    def read(cls, document: Any) -> Self:
        """Read a report. Raises `ValueError` if it is none."""
        try:
            client = document["client"]
            return cls(
                listeners={name.lower(): UsedFiles.read(used) for name, used in document["listeners"].items()},
                client=None if client is None else UsedFiles.read(client),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no report of certificates: {document!r:.100}") from error


AskBrokers = Callable[[Cluster, Collection[int]], Awaitable[Mapping[int, TlsReport]]]
"""Returns the reports of those brokers that answer, by id."""


async def ask_brokers(cluster: Cluster, brokers: Collection[int]) -> Mapping[int, TlsReport]:
    """Ask brokers at once, for five seconds at most."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ASK_SECONDS)) as session:
        answers = await asyncio.gather(*(_ask(session, url_of(cluster, broker)) for broker in brokers))
    return {broker: report for broker, report in zip(brokers, answers, strict=True) if report is not None}


def url_of(cluster: Cluster, broker: int) -> str:
    """Return the URL of the report of a broker."""
    pod = names.broker_pod(cluster.name, cluster.brokers.pod_of(broker))
    host = names.host(pod, names.brokers_service(cluster.name), cluster.namespace)
    return f"http://{host}:{slots.port(names.METRICS_PORT, cluster.brokers.slot_of(broker))}/tls"


async def _ask(session: aiohttp.ClientSession, url: str) -> TlsReport | None:
    try:
        async with session.get(url) as answer:
            answer.raise_for_status()
            if (answer.content_length or 0) > _MAX_BYTES:
                return None
            return TlsReport.read(await answer.json())
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return None  # It starts, or has another version. The status names it as the one that the replacement waits for.


def trust_between_brokers(brokers: Iterable[int], reports: Mapping[int, TlsReport]) -> tuple[PodTrust, ...]:
    """Return for the cluster authority what each broker trusts on both sides of connections to others."""
    found = []
    for broker in brokers:
        report = reports.get(broker)
        served = None if report is None else report.listeners.get(names.SECURE_REPLICATION_LISTENER)
        if report is None or served is None or report.client is None:
            found.append(PodTrust(_name(broker)))
            continue
        issuers = {used.chain[1] for used in (served, report.client) if len(used.chain) > 1}
        signed_by = issuers.pop() if len(issuers) == 1 else ""
        found.append(PodTrust(_name(broker), served.trusted & report.client.trusted, signed_by))
    return tuple(found)


def trust_between_members(
    cluster: Cluster, state: KubernetesState, stored: Mapping[str, Mapping[str, bytes]]
) -> tuple[PodTrust, ...]:
    """Return for the cluster authority what each member of an ensemble with TLS uses.

    Members do not follow files, so their pods tell: one whose digest is that of the Secret has its certificates. An
    authority that the operator has not made is not replaced by it.
    """
    authority = stored.get(names.cluster_ca(cluster.name))
    if authority is None or not cluster.ensemble_link.accepts_tls:
        return ()
    digest = certificates_digest(stored.get(names.zookeeper_certs(cluster.name), {}))
    trust = StoredAuthority.read(authority, names.cluster_ca(cluster.name)).trust
    trusted = frozenset(authority.fingerprint for authority in trust.trusted)
    found = []
    for member in range(cluster.zookeeper.replicas):
        pod = state.ensemble.get(member)
        is_current = pod is not None and pod.ready and pod.certificates == digest
        name = f"member {member} of the ensemble"
        found.append(PodTrust(name, trusted, trust.signing) if is_current else PodTrust(name))
    return tuple(found)


def trust_of_users(
    cluster: Cluster, brokers: Iterable[int], reports: Mapping[int, TlsReport], signing: str
) -> tuple[PodTrust, ...]:
    """Return for the clients authority what each broker trusts on listeners for certificates of users.

    Brokers have no certificate of this authority. `signing`: the fingerprint of the one that signs now.
    """
    listeners = [listener.name for listener in cluster.listeners if listener.login == TLS_LOGIN]
    if not listeners:
        return ()
    found = []
    for broker in brokers:
        report = reports.get(broker)
        served = [] if report is None else [report.listeners.get(name) for name in listeners]
        trusted = [used.trusted for used in served if used is not None]
        complete = report is not None and len(trusted) == len(listeners)
        both = frozenset.intersection(*trusted) if complete else frozenset()
        found.append(PodTrust(_name(broker), both, signing))
    return tuple(found)


def _name(broker: int) -> str:
    return f"broker {broker}"
