"""The Secrets of users: reads them, and writes what has changed. `security/user_material` decides on the content.

A Secret belongs to its User resource, with which Kubernetes deletes it. Secrets of others are never changed.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

from odradek.base.errors import OdradekError
from odradek_operator.crds.types import API_VERSION, Cluster, User
from odradek_operator.kube.api.api_client import KubernetesClient
from odradek_operator.kube.api.object_kinds import Kind, Object
from odradek_operator.kube.api.owners import is_leaving, owner_of
from odradek_operator.kube.cluster.cluster_secrets import content_of
from odradek_operator.objects import names
from odradek_operator.objects.certificate_objects import clients_authority
from odradek_operator.security.material import Files
from odradek_operator.security.user_material import UserAuthorities, is_usable_password, user_authorities, user_files

NEW_PASSWORD: Final = "odradek.dev/new-password"
"""Annotation of a User: each new value asks for a new password or certificate. The Secret has the last value for which
one was made."""
USER_COMPONENT: Final = "user"
"""Value of the component's label of a user's Secret."""


class UserError(OdradekError):
    """A user cannot be made as specified. The text says why, and what to do."""

    def __init__(self, reason: str, message: str) -> None:
        """`reason`: one word, for a condition."""
        super().__init__(message)
        self.reason: Final = reason


class KeptSecret(NamedTuple):
    """The Secret of a user after a round."""

    files: Files
    """Its data."""
    is_written: bool
    """Whether it was written in this round."""
    is_request_open: bool
    """Whether a new password was requested that the operator cannot make, because the resource names the password."""


def requested(body: Object) -> str:
    """Return the value of the annotation that asks for a new password."""
    return str((body["metadata"].get("annotations") or {}).get(NEW_PASSWORD, ""))


async def read_authorities(client: KubernetesClient, cluster: Cluster) -> UserAuthorities:
    """Return what the Secrets of users are made with. Raises `UserError` while the cluster does not have it."""
    wanted = (clients_authority(cluster), names.cluster_ca_cert(cluster.name))
    bodies = [await client.get(Kind.SECRET, cluster.namespace, name) for name in wanted]
    clients, trusted = ({} if body is None else content_of(body) for body in bodies)
    found = user_authorities(cluster, clients, trusted)
    if found is None:
        why = "is being made" if cluster.is_secured else "needs a listener with tls or authentication"
        raise UserError("NoAuthority", f"The certificate authority of Cluster {cluster.name} {why}.")
    return found


async def keep_secret(
    client: KubernetesClient, cluster: Cluster, user: User, body: Object, authorities: UserAuthorities
) -> KeptSecret:
    """Complete the Secret of a user.

    Raises `UserError` if the name belongs to someone else or the given password cannot be used, and `KubernetesError`.
    """
    metadata = _metadata(cluster, user)
    present = await client.get(Kind.SECRET, user.namespace, user.name)
    if present is not None and (owner := owner_of(present, {"metadata": metadata})) is not None:
        if is_leaving(present, {"metadata": metadata}):
            raise UserError("FormerSecretGoing", f"Waiting until Secret {user.name} of a former User is deleted.")
        raise UserError(
            "ForeignObject",
            f"Secret {user.namespace}/{user.name} belongs to {owner} and is not changed, so this user has no login. "
            "Give the User another name, or remove that Secret.",
        )
    stored: Files = {} if present is None else content_of(present)
    known = "" if present is None else requested(present)
    password = await _given_password(client, user)
    is_asked = requested(body) not in ("", known)
    is_open, is_made = is_asked and password is not None, is_asked and password is None
    is_new = bool(stored) and is_made
    files = user_files(cluster, user, stored, authorities, is_new=is_new, now=datetime.now(UTC), password=password)
    if present is not None and files == stored and not is_made and _is_labelled(present, metadata):
        return KeptSecret(files, is_written=False, is_request_open=is_open)
    if is_made:
        metadata["annotations"] = {NEW_PASSWORD: requested(body)}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": metadata,
        "data": {key: base64.b64encode(content).decode() for key, content in files.items()},
    }
    if present is None:
        await client.create(secret)
    else:
        version = {"resourceVersion": present["metadata"]["resourceVersion"]}
        kept = {**present["metadata"], **metadata, **version}
        for part in ("labels", "annotations"):
            kept[part] = {**(present["metadata"].get(part) or {}), **metadata[part]}
        await client.replace({**secret, "metadata": kept})
    return KeptSecret(files, is_written=True, is_request_open=is_open)


async def _given_password(client: KubernetesClient, user: User) -> bytes | None:
    """Return the password that the resource names; None if the operator makes one. Raises `UserError`."""
    source = user.password_source
    if source is None:
        return None
    where = f"Secret {user.namespace}/{source.name}"
    if source.name == user.name:
        raise UserError("PasswordUnusable", f"{where} is the one of this User: keep the password in another Secret.")
    body = await client.get(Kind.SECRET, user.namespace, source.name)
    if body is None:
        raise UserError("NoPassword", f"{where} with the password does not exist: create it.")
    content = content_of(body).get(source.key)
    if content is None:
        raise UserError("NoPassword", f"{where} has no entry {source.key} with the password: add it.")
    if not is_usable_password(content):
        raise UserError(
            "PasswordUnusable",
            f"{source.key} of {where} is not a password: it must be text in UTF-8, without control characters.",
        )
    return content.strip()


def _is_labelled(present: Object, wanted: Object) -> bool:
    labels: Mapping[str, str] = present["metadata"].get("labels") or {}
    return all(labels.get(label) == value for label, value in wanted["labels"].items())


def _metadata(cluster: Cluster, user: User) -> Object:
    return {
        "name": user.name,
        "namespace": user.namespace,
        "labels": {
            "app.kubernetes.io/name": "odradek",
            "app.kubernetes.io/instance": cluster.name,
            names.MANAGED_BY_LABEL: names.FIELD_MANAGER,
            names.CLUSTER_LABEL: cluster.name,
            names.COMPONENT_LABEL: USER_COMPONENT,
            names.NAMESPACE_LABEL: user.namespace,
        },
        "annotations": {},
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": "User",
                "name": user.name,
                "uid": user.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
