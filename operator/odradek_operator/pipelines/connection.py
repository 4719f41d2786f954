"""Where and how a job connects to the brokers: from the Pipeline, its Cluster and its User. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from odradek_operator.crds.types import SERVICE_ACCOUNT_LOGIN, Cluster, Listener, ListenerType, Pipeline, User
from odradek_operator.objects import names
from odradek_operator.pipelines.pipeline_names import pipeline_objects_name
from odradek_operator.security.user_material import listener_for


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConnection:
    """How driver and executors connect."""

    bootstrap_servers: str
    user_secret: str | None = None
    """Secret of the User with `client.properties`."""
    audience: str | None = None
    """Audience of the token with which the job logs in as its ServiceAccount; None without such a login."""
    authority: str | None = None
    """Secret with the authority of the brokers, which the job trusts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoConnection:
    """Why a job cannot connect."""

    reason: str
    """One word, for a condition."""
    message: str


def job_connection(pipeline: Pipeline, cluster: Cluster | None, user: User | None) -> JobConnection | NoConnection:
    """Return how the job connects, or why it cannot. `cluster` and `user` are those that it names; None if missing."""
    if pipeline.user is not None and (obstacle := _user_obstacle(pipeline, user)) is not None:
        return obstacle
    if pipeline.bootstrap_servers is not None:
        return JobConnection(bootstrap_servers=pipeline.bootstrap_servers, user_secret=pipeline.user)
    if cluster is None:
        return NoConnection(
            reason="NoCluster", message=f"There is no Cluster {pipeline.cluster} in this namespace, or it is invalid."
        )
    if user is not None:
        return _with_user(pipeline, cluster, user)
    return _without_user(pipeline, cluster)


def _user_obstacle(pipeline: Pipeline, user: User | None) -> NoConnection | None:
    if user is None:
        return NoConnection(
            reason="NoUser", message=f"There is no User {pipeline.user} in this namespace, or it is invalid."
        )
    if not user.has_secret:
        account = pipeline_objects_name(pipeline.name)
        return NoConnection(
            reason="UserWithoutSecret",
            message=f"User {user.name} has no Secret with a login. To log in as a ServiceAccount, remove spec.user and "
            f"give a User of type serviceaccount the name {account}.",
        )
    if pipeline.cluster is not None and user.cluster != pipeline.cluster:
        return NoConnection(
            reason="UserOfAnotherCluster",
            message=f"User {user.name} belongs to Cluster {user.cluster}, not to {pipeline.cluster}.",
        )
    return None


def _with_user(pipeline: Pipeline, cluster: Cluster, user: User) -> JobConnection | NoConnection:
    listener = listener_for(cluster, user)
    if listener is None or listener.type is not ListenerType.INTERNAL:
        return NoConnection(
            reason="NoListener",
            message=f"User {user.name} needs a listener of type internal with authentication {user.login}, which "
            f"Cluster {cluster.name} does not have.",
        )
    return JobConnection(bootstrap_servers=_address(cluster, listener), user_secret=user.name)


def _without_user(pipeline: Pipeline, cluster: Cluster) -> JobConnection | NoConnection:
    internal = [listener for listener in cluster.listeners if listener.type is ListenerType.INTERNAL]
    for listener in internal:
        if listener.login == SERVICE_ACCOUNT_LOGIN:
            return JobConnection(
                bootstrap_servers=_address(cluster, listener),
                audience=names.token_audience(cluster.name, cluster.namespace),
                authority=names.cluster_ca_cert(cluster.name),
            )
    for listener in internal:
        if listener.authentication is None:
            authority = names.cluster_ca_cert(cluster.name) if listener.tls else None
            return JobConnection(bootstrap_servers=_address(cluster, listener), authority=authority)
    return NoConnection(
        reason="NoListener",
        message=f"Cluster {cluster.name} has no listener of type internal that is without authentication or has "
        "authentication of type serviceaccount: name a User in spec.user, or add such a listener.",
    )


def _address(cluster: Cluster, listener: Listener) -> str:
    return f"{names.bootstrap_service(cluster.name)}.{cluster.namespace}.svc:{listener.port}"
