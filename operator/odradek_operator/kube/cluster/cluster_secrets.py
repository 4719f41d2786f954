"""The Secrets of one cluster: reads them, completes their content, and writes what has changed.

The loop of a cluster calls it in each round in which the cluster has certificates. What the Secrets must have is
decided by `security/material`. A Secret is written over the version that was read, and Secrets of others are never
changed.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from odradek_operator.crds.types import Cluster
from odradek_operator.kube.api.api_client import KubernetesClient, KubernetesError
from odradek_operator.kube.api.object_kinds import Kind, Object
from odradek_operator.kube.api.owners import owner_of
from odradek_operator.kube.cluster.cluster_view import View
from odradek_operator.kube.cluster.tls_reports import (
    AskBrokers,
    ask_brokers,
    trust_between_brokers,
    trust_between_members,
    trust_of_users,
)
from odradek_operator.lifecycle.steps import Waiting
from odradek_operator.lifecycle.tls_links import SECURITY
from odradek_operator.objects import names, parts
from odradek_operator.objects.certificate_objects import clients_authority, given_secret
from odradek_operator.objects.listener_security import needs_service_account_keys
from odradek_operator.objects.names import BrokerLink, Component
from odradek_operator.objects.properties_file import certificates_digest
from odradek_operator.security.authorities import AuthorityError
from odradek_operator.security.broker_hosts import broker_hosts
from odradek_operator.security.material import Files, ReplacementState, cluster_files, secrets_of
from odradek_operator.security.stored_authority import (
    CA_CERTIFICATE,
    StoredAuthority,
    given_authority,
    is_being_replaced,
)

REPLACING_SECONDS: Final = 30.0
"""Seconds between two looks at a replacement that waits for brokers or clients."""


class ClusterSecrets:
    """The Secrets of one cluster."""

    def __init__(
        self, client: KubernetesClient, check_fresh: Callable[[], None], ask_brokers: AskBrokers = ask_brokers
    ) -> None:
        """`check_fresh` raises an error unless this round has a fresh view."""
        self.notices: tuple[str, ...] = ()
        """What replacements of authorities wait for, since the last fresh view."""
        self.identity: Files | None = None
        """The Secret with the operator's certificate, with which it connects to ZooKeeper; None if it is not known."""
        self.ensemble_certificates = ""
        """Digest of the certificates of the ensemble's members; empty if it is not known, or if there are none."""
        self.authorities: object = None
        """Changes with what users trust and with what signs their certificates."""
        self._ask_brokers = ask_brokers
        self._ask_again_at = math.inf
        """When a replacement has to be looked at again, in seconds of the event loop."""
        self._client = client
        self._check_fresh = check_fresh
        self._settled: object = None
        """What the Secrets were last completed for."""

    async def settle(self, cluster: Cluster, view: View, *, is_fresh: bool) -> tuple[Waiting, ...]:
        """Complete the Secrets of a cluster that has certificates. Returns why it cannot, if so.

        Secrets are read only in rounds with a fresh view, so that what they contain need not be kept in memory.
        """
        if not cluster.is_secured and cluster.broker_link is BrokerLink.PLAINTEXT:
            return ()
        hosts = _hosts(cluster, view)
        annotations = view.cluster["metadata"].get("annotations") or {}
        requests = tuple(str(annotations.get(names.replace_ca(kind), "")) for kind in ("cluster", "clients"))
        needed = (cluster.uid, hosts, cluster.certificate_authorities, needs_service_account_keys(cluster), requests)
        if not is_fresh:
            if needed != self._settled or asyncio.get_running_loop().time() >= self._ask_again_at:
                self._check_fresh()
            return ()
        self._settled = None
        present = await self._read(cluster)
        if (foreign := _foreign(cluster, present)) is not None:
            return (foreign,)
        try:
            stored = {name: content_of(body) for name, body in present.items()}
            token_keys, refusals = await self._token_keys(cluster)
            of_cluster, of_clients = await self._replacements(cluster, view, sorted(hosts), stored, requests)
            wanted = cluster_files(
                cluster,
                hosts,
                stored,
                of_cluster=of_cluster,
                of_clients=of_clients,
                token_keys=token_keys,
                now=datetime.now(UTC),
            )
        except AuthorityError as error:
            return (_refusal("AuthorityUnusable", f"The certificates of the cluster cannot be made: {error}."),)
        for name, files in wanted.secrets.items():
            if stored.get(name) != files:
                await self._write(cluster, name, files, present.get(name))
        if not refusals:
            self._settled = needed
        self.notices = wanted.notices
        self.authorities = _trust_in(cluster, {**stored, **wanted.secrets})
        self.identity = wanted.secrets[names.operator_certs(cluster.name)]
        if (members := wanted.secrets.get(names.zookeeper_certs(cluster.name))) is not None:
            self.ensemble_certificates = certificates_digest(members)
        seconds = REPLACING_SECONDS if wanted.is_replacing else math.inf
        self._ask_again_at = asyncio.get_running_loop().time() + seconds
        return refusals

    async def _replacements(
        self,
        cluster: Cluster,
        view: View,
        brokers: Sequence[int],
        stored: Mapping[str, Files],
        requests: Sequence[str],
    ) -> tuple[ReplacementState, ReplacementState]:
        """Return the state of the replacements of both authorities. Brokers are asked only if it matters."""
        secrets = names.cluster_ca(cluster.name), names.clients_ca(cluster.name)
        authorities = [stored.get(secret, {}) for secret in secrets]
        if not any(map(is_being_replaced, authorities)):
            first, second = (ReplacementState(request=request) for request in requests)
            return first, second
        reports = await self._ask_brokers(cluster, brokers)
        signing = StoredAuthority.read(authorities[1], secrets[1]).trust.signing if authorities[1] else ""
        members = trust_between_members(cluster, view.state, stored)
        return (
            ReplacementState(request=requests[0], pods=(*trust_between_brokers(brokers, reports), *members)),
            ReplacementState(request=requests[1], pods=trust_of_users(cluster, brokers, reports, signing)),
        )

    async def _token_keys(self, cluster: Cluster) -> tuple[bytes | None, tuple[Waiting, ...]]:
        """Return the keys that verify tokens of ServiceAccounts, or None and why the API server refuses them."""
        if not needs_service_account_keys(cluster):
            return None, ()
        try:
            return await self._client.service_account_keys(), ()
        except KubernetesError as error:
            if not HTTPStatus.BAD_REQUEST <= error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            message = (
                f"The brokers cannot verify tokens of ServiceAccounts: {error}. Bind the ClusterRole "
                "system:service-account-issuer-discovery to the ServiceAccount of the operator."
            )
            return None, (_refusal("TokenKeysRefused", message),)

    async def _read(self, cluster: Cluster) -> dict[str, Object]:
        secrets = sorted(secrets_of(cluster))
        bodies = await asyncio.gather(*(self._client.get(Kind.SECRET, cluster.namespace, name) for name in secrets))
        return {name: body for name, body in zip(secrets, bodies, strict=True) if body is not None}

    async def _write(self, cluster: Cluster, name: str, files: Files, present: Object | None) -> None:
        data = {key: base64.b64encode(content).decode() for key, content in files.items()}
        if present is not None:
            await self._client.replace({**present, "data": data})
            return
        metadata = parts.metadata(cluster, Component.KAFKA, name)
        await self._client.create(
            {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}
        )


def _trust_in(cluster: Cluster, secrets: Mapping[str, Files]) -> object:
    """Return the certificates with which Secrets of users are made."""
    clients = given_authority(secrets.get(clients_authority(cluster), {}))
    return secrets.get(names.cluster_ca_cert(cluster.name), {}).get(CA_CERTIFICATE), clients and clients[0]


def _hosts(cluster: Cluster, view: View) -> dict[int, tuple[str, ...]]:
    record, brokers = view.state.record, cluster.brokers
    ids = brokers.ids(max(brokers.replicas, record.brokers or 0), max(brokers.per_pod, record.per_pod or 1))
    addresses = [address for node in view.state.nodes.values() for address in node.addresses]
    return broker_hosts(cluster, sorted(ids), services=view.services, node_addresses=addresses)


def _foreign(cluster: Cluster, present: Mapping[str, Object]) -> Waiting | None:
    """Return the refusal if a Secret that the operator has to write belongs to someone else."""
    sources = cluster.certificate_authorities
    given = {
        given_secret(names.cluster_ca(cluster.name), sources.cluster),
        given_secret(names.clients_ca(cluster.name), sources.clients),
    }
    for name, body in present.items():
        if name in given:
            continue
        owner = owner_of(body, {"metadata": parts.metadata(cluster, Component.KAFKA, name)})
        if owner is not None:
            return _refusal(
                "ForeignObject",
                f"Secret {cluster.namespace}/{name} belongs to {owner} and is not changed, so this cluster has no "
                "certificates. Give the Cluster another name or namespace, or remove that Secret.",
            )
    return None


def content_of(body: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the decoded data of a Secret. The API server refuses data that is not base64."""
    found = {}
    for key, value in (body.get("data") or {}).items():
        try:
            found[key] = base64.b64decode(value, validate=True)
        except binascii.Error as error:
            raise AuthorityError(f"Secret {body['metadata']['name']} has no base64 in {key}") from error
    return found


def _refusal(reason: str, message: str) -> Waiting:
    return Waiting(what=SECURITY, reason=reason, message=message, needs_person=True)
