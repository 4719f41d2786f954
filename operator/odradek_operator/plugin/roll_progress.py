"""How far a rolling restart is, from the objects of a cluster. Pure.

The pods say more than the status of the Cluster, which the operator has not written yet right after a request.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from odradek_operator.kube.api.object_kinds import Object
from odradek_operator.objects import names


@dataclass(frozen=True, slots=True, kw_only=True)
class RollProgress:
    """The state of a roll."""

    is_done: bool
    """Whether every pod has the current template and is ready, and the operator has nothing left to do."""
    message: str
    """One line for a person."""


def roll_progress(cluster: Object, sets: Iterable[Object], pods: Iterable[Object]) -> RollProgress:
    """Return the progress of a cluster. `sets` and `pods` are those with the label of the cluster."""
    wanted = {one["metadata"]["name"]: one for one in sets}
    outdated, starting, ready = [], [], 0
    for pod in sorted(pods, key=lambda one: str(one["metadata"]["name"])):
        name = pod["metadata"]["name"]
        owner = wanted.get(name.rpartition("-")[0])
        if owner is None:
            continue
        if _hash(pod) != _hash(owner["spec"]["template"]):
            outdated.append(name)
        elif not _is_ready(pod):
            starting.append(name)
        else:
            ready += 1
    size = sum(one["spec"]["replicas"] for one in wanted.values())
    condition = _ready_condition(cluster)
    is_current = (cluster.get("status") or {}).get("observedGeneration") == cluster["metadata"].get("generation")
    is_done = bool(wanted) and ready == size and condition.get("status") == "True" and is_current and not outdated
    if is_done:
        return RollProgress(is_done=True, message=f"All {size} pods have the current template and are ready.")
    parts = [f"{ready} of {size} pods have the current template and are ready"]
    if outdated:
        parts.append(f"to restart: {', '.join(outdated)}")
    if starting:
        parts.append(f"starting: {', '.join(starting)}")
    return RollProgress(is_done=False, message="; ".join(parts) + "." + _why(cluster, condition, is_current=is_current))


def _why(cluster: Object, condition: Object, *, is_current: bool) -> str:
    """Return what the operator waits for, or reports."""
    if not is_current:
        return " The operator has not reconciled the latest specification yet."
    waiting = ((cluster.get("status") or {}).get("roll") or {}).get("waitingFor")
    if waiting:
        return f" Waiting: {waiting}"
    if condition.get("status") != "True" and condition.get("message"):
        return f" {condition['reason']}: {condition['message']}"
    return ""


def _hash(body: Object) -> str | None:
    annotations = body["metadata"].get("annotations") or {}
    found = annotations.get(names.RESTART_HASH)
    return None if found is None else str(found)


def _is_ready(pod: Object) -> bool:
    if "deletionTimestamp" in pod["metadata"]:
        return False
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _ready_condition(cluster: Object) -> Object:
    conditions: list[Object] = (cluster.get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == "Ready"), {})
