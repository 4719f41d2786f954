"""The Deployment controller of the simulated Kubernetes, for the Deployments of Mirrors. Pure.

All pods of a new template start at once, and those of the former one are deleted when the new ones are ready.
"""

from __future__ import annotations

import copy
import json
from hashlib import sha256

from odradek_operator.kube.api.object_kinds import Kind, Object
from odradek_operator.mirrors.mirror_names import MIRROR_LABEL
from odradek_operator_testkit.api import KubernetesApi
from odradek_operator_testkit.store import key_of


def run_deployments(api: KubernetesApi, namespace: str) -> None:
    """Create and delete pods of all Deployments of Mirrors, and write the statuses of the Deployments."""
    for body in api.store.all(api.place(Kind.DEPLOYMENT.path(namespace)).resource, namespace):
        if MIRROR_LABEL in (body["metadata"].get("labels") or {}):
            _run(api, body)


def deployed_pods(api: KubernetesApi, deployment: Object) -> list[Object]:
    """Return the pods of a Deployment that are not being deleted, by name."""
    namespace, uid = deployment["metadata"]["namespace"], deployment["metadata"]["uid"]
    pods = api.store.all(api.place(Kind.POD.path(namespace)).resource, namespace)
    owned = [
        pod
        for pod in pods
        if any(owner["uid"] == uid for owner in pod["metadata"].get("ownerReferences") or [])
        and "deletionTimestamp" not in pod["metadata"]
    ]
    return sorted(owned, key=lambda pod: str(pod["metadata"]["name"]))


def _run(api: KubernetesApi, body: Object) -> None:
    name, spec = body["metadata"]["name"], body["spec"]
    digest = sha256(json.dumps(spec["template"], sort_keys=True).encode()).hexdigest()[:8]
    wanted = [f"{name}-{digest}-{number}" for number in range(spec["replicas"])]
    present = {pod["metadata"]["name"]: pod for pod in deployed_pods(api, body)}
    for pod in wanted:
        if pod not in present:
            api.put(_pod(body, pod))
    updated = [present[pod] for pod in wanted if pod in present]
    ready = [pod for pod in updated if _is_ready(pod)]
    if len(ready) == len(wanted):
        for pod in present.keys() - set(wanted):
            api.store.delete(key_of(present[pod]), {})
    status = {
        "observedGeneration": body["metadata"]["generation"],
        "replicas": len(present),
        "updatedReplicas": len(updated),
        "readyReplicas": sum(map(_is_ready, present.values())),
    }
    if status != body.get("status"):
        api.store.merge(key_of(body), {"status": status}, status_only=True)


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _pod(owner: Object, name: str) -> Object:
    template = copy.deepcopy(owner["spec"]["template"])
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    metadata = {
        **template["metadata"],
        "name": name,
        "namespace": owner["metadata"]["namespace"],
        "ownerReferences": [reference],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
