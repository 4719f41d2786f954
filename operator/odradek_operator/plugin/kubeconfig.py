"""Connects to the API server as kubectl does: with a kubeconfig, one of its contexts, and the namespace of that."""

from __future__ import annotations

from typing import Any, NamedTuple

from kubernetes import config
from kubernetes.client import Configuration

from odradek_operator.kube.api.api_client import KubernetesClient, KubernetesError

DEFAULT_NAMESPACE = "default"


class Session(NamedTuple):
    """A client, and the namespace of the command."""

    client: KubernetesClient
    namespace: str


def connect(*, kubeconfig: str | None, context: str | None, namespace: str | None) -> Session:
    """Return a client for a context, and its namespace unless one is given. Call it on the event loop.

    Without `kubeconfig`, the files of KUBECONFIG count, by default `~/.kube/config`. Raises `KubernetesError` if there
    is no such file or context.
    """
    configuration = Configuration()
    try:
        contexts, active = config.list_kube_config_contexts(config_file=kubeconfig)  # type: ignore[no-untyped-call]
        config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=kubeconfig, context=context, client_configuration=configuration, persist_config=False
        )
    except (config.ConfigException, OSError) as error:
        raise KubernetesError("kubeconfig", 0, f"{error}; see --kubeconfig, KUBECONFIG and --context") from error
    return Session(KubernetesClient(configuration), namespace or _namespace(contexts, active, context))


def _namespace(contexts: list[dict[str, Any]], active: dict[str, Any] | None, name: str | None) -> str:
    chosen = active if name is None else next((one for one in contexts if one["name"] == name), None)
    return str(((chosen or {}).get("context") or {}).get("namespace") or DEFAULT_NAMESPACE)
