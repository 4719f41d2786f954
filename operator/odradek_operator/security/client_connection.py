"""Where and how the pods of a resource connect to brokers: from its fields, a Cluster and a User. Pure.

Pipelines and Mirrors use it. `ConnectionWish` has what the resource says, and `client_connection` returns addresses and
login, or why there are none.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek_operator.crds.types import SERVICE_ACCOUNT_LOGIN, Cluster, Listener, ListenerType, User
from odradek_operator.objects import names
from odradek_operator.security.user_material import listener_for


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionWish:
    """What a resource says about a connection. Exactly one of `cluster` and `bootstrap_servers` is set."""

    field: str
    """Path of the part of the resource that has these fields, for messages."""
    account: str
    """ServiceAccount of the pods."""
    cluster: str | None = None
    bootstrap_servers: str | None = None
    user: str | None = None
    secret: str | None = None
    """Secret with `client.properties` that belongs to no User."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConnection:
    """How the pods of a resource connect."""

    bootstrap_servers: str
    secret: str | None = None
    """Secret with `client.properties`, such as that of a User."""
    audience: str | None = None
    """Audience of the token with which pods log in as their ServiceAccount; None without such a login."""
    authority: str | None = None
    """Secret with the authority of the brokers, which the pods trust."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoConnection:
    """Why pods cannot connect."""

    reason: str
    """One word, for a condition."""
    message: str


def client_connection(
    wish: ConnectionWish, cluster: Cluster | None, user: User | None
) -> ClientConnection | NoConnection:
    """Return how pods connect, or why they cannot. `cluster` and `user` are those that it names; None if missing."""
    if wish.user is not None and (obstacle := _user_obstacle(wish, user)) is not None:
        return obstacle
    if wish.bootstrap_servers is not None:
        return ClientConnection(bootstrap_servers=wish.bootstrap_servers, secret=wish.user or wish.secret)
    if cluster is None:
        return NoConnection(
            reason="NoCluster", message=f"There is no Cluster {wish.cluster} in this namespace, or it is invalid."
        )
    if user is not None:
        return _with_user(cluster, user)
    return _without_user(wish, cluster)


def _user_obstacle(wish: ConnectionWish, user: User | None) -> NoConnection | None:
    if user is None:
        return NoConnection(
            reason="NoUser", message=f"There is no User {wish.user} in this namespace, or it is invalid."
        )
    if not user.has_secret:
        return NoConnection(
            reason="UserWithoutSecret",
            message=f"User {user.name} has no Secret with a login. To log in as a ServiceAccount, remove "
            f"{wish.field}.user and give a User of type serviceaccount the name {wish.account}.",
        )
    if wish.cluster is not None and user.cluster != wish.cluster:
        return NoConnection(
            reason="UserOfAnotherCluster",
            message=f"User {user.name} belongs to Cluster {user.cluster}, not to {wish.cluster}.",
        )
    return None


def _with_user(cluster: Cluster, user: User) -> ClientConnection | NoConnection:
    listener = listener_for(cluster, user)
    if listener is None or listener.type is not ListenerType.INTERNAL:
        return NoConnection(
            reason="NoListener",
            message=f"User {user.name} needs a listener of type internal with authentication {user.login}, which "
            f"Cluster {cluster.name} does not have.",
        )
    return ClientConnection(bootstrap_servers=_address(cluster, listener), secret=user.name)


def _without_user(wish: ConnectionWish, cluster: Cluster) -> ClientConnection | NoConnection:
    internal = [listener for listener in cluster.listeners if listener.type is ListenerType.INTERNAL]
    for listener in internal:
        if listener.login == SERVICE_ACCOUNT_LOGIN:
            return ClientConnection(
                bootstrap_servers=_address(cluster, listener),
                audience=names.token_audience(cluster.name, cluster.namespace),
                authority=names.cluster_ca_cert(cluster.name),
            )
    for listener in internal:
        if listener.authentication is None:
            authority = names.cluster_ca_cert(cluster.name) if listener.tls else None
            return ClientConnection(bootstrap_servers=_address(cluster, listener), authority=authority)
    return NoConnection(
        reason="NoListener",
        message=f"Cluster {cluster.name} has no listener of type internal that is without authentication or has "
        f"authentication of type serviceaccount: name a User in {wish.field}.user, or add such a listener.",
    )


def _address(cluster: Cluster, listener: Listener) -> str:
    return f"{names.bootstrap_service(cluster.name)}.{cluster.namespace}.svc:{listener.port}"
