"""The objects of the in-memory API server: versions, generations, finalizers, deletion, and events for watches.

Operations return objects, or raise an `ApiError` with the status of a real API server. Invariant: every change has a
new version, which is higher than all others. A write without a change has none.

Admission, defaults, schemas and field owners are not implemented. There are no controllers: tests do their work, except
for the garbage collector, which is part of every deletion.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from itertools import count
from typing import Any, Final
from uuid import UUID

from odradek_operator_testkit import merging
from odradek_operator_testkit.resources import BY_PLURAL, RESOURCES, Object, Resource
from odradek_operator_testkit.rules import check_update

FIRST_VERSION: Final = 1_000
HISTORY: Final = 20_000
"""Number of changes that watches can still request. For older ones they get 410 Gone."""


class ApiError(Exception):
    """A rejected request, with status code, reason and message."""

    def __init__(self, status: HTTPStatus, reason: str, message: str) -> None:
        """Create an error. `reason` is the reason in the `Status` object."""
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message

    def document(self) -> Object:
        """Return the `Status` object."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": int(self.status),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """Resource, namespace and name of an object. `namespace` is empty for a cluster-scoped object."""

    resource: Resource
    namespace: str
    name: str

    def __str__(self) -> str:
        """Return the name as the API server writes it in messages."""
        return f'{self.resource.plural} "{self.name}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of an object, for watches."""

    version: int
    key: Key
    before: Object | None
    after: Object | None
    """The object after the change. None if it was deleted; then `before` has the version of the deletion."""


class Store:
    """All objects of an API server. Not thread-safe."""

    def __init__(self, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Create an empty store. `now` returns the time for timestamps of creation and deletion."""
        self.version = FIRST_VERSION
        self.changes: deque[Change] = deque(maxlen=HISTORY)
        self.forgotten = FIRST_VERSION
        """Changes up to this version are no longer available to watches."""
        self.listeners: list[Callable[[], None]] = []
        """Functions that are called after every change."""
        self._now = now
        self._objects: dict[Key, Object] = {}
        self._applied: dict[Key, dict[str, Object]] = {}
        """The last configuration of each field manager, without fields that others changed since."""
        self._uids = count(1)

    # Reads

    def find(self, key: Key) -> Object | None:
        """Return a copy of an object; None if it does not exist."""
        found = self._objects.get(key)
        return None if found is None else copy.deepcopy(found)

    def get(self, key: Key) -> Object:
        """Return a copy of an object. Raises `ApiError` 404."""
        found = self.find(key)
        if found is None:
            raise ApiError(HTTPStatus.NOT_FOUND, "NotFound", f"{key} not found")
        return found

    def all(self, resource: Resource, namespace: str | None) -> list[Object]:
        """Return copies of all objects of a kind, in one or all namespaces, sorted by namespace and name."""
        keys = [key for key in self._objects if key.resource is resource and namespace in (None, key.namespace)]
        return [copy.deepcopy(self._objects[key]) for key in sorted(keys, key=lambda each: (each.namespace, each.name))]

    def forget_history(self) -> None:
        """Forget old changes, like a compaction of etcd. Watches can then only start at the current version."""
        self.changes.clear()
        self.forgotten = self.version

    # Writes

    def create(self, key: Key, body: Object) -> Object:
        """Create an object. Raises `ApiError` 409 if it exists."""
        if key in self._objects:
            raise ApiError(HTTPStatus.CONFLICT, "AlreadyExists", f"{key} already exists")
        new = copy.deepcopy(body)
        new["apiVersion"], new["kind"] = key.resource.api_version, key.resource.kind
        if key.resource.has_status:
            new.pop("status", None)
        metadata = new["metadata"]
        for field in ("resourceVersion", "generation", "deletionTimestamp", "selfLink", "managedFields"):
            metadata.pop(field, None)
        metadata |= {"name": key.name, "uid": str(UUID(int=next(self._uids))), "creationTimestamp": self._stamp()}
        if key.resource.namespaced:
            metadata["namespace"] = key.namespace
        if key.resource.has_generation:
            metadata["generation"] = 1
        return self._put(key, new)

    def replace(self, key: Key, body: Object, *, status_only: bool = False) -> Object:
        """Replace an object, or its status. Raises `ApiError` 409 for a stale `resourceVersion`."""
        present = self.get(key)
        wanted = body["metadata"].get("resourceVersion", "")
        if wanted and wanted != present["metadata"]["resourceVersion"]:
            raise _conflict(key, "the object has been modified; please apply your changes to the latest version")
        return self._update(key, present, body, status_only=status_only)

    def merge(self, key: Key, patch: Object, *, status_only: bool = False) -> Object:
        """Apply a merge patch to an object. A `resourceVersion` in the patch must be the current one."""
        present = self.get(key)
        wanted = (patch.get("metadata") or {}).get("resourceVersion")
        if wanted and wanted != present["metadata"]["resourceVersion"]:
            raise _conflict(key, "the object has been modified; please apply your changes to the latest version")
        return self._update(key, present, merging.merge(present, patch), status_only=status_only)

    def apply(self, key: Key, config: Object, manager: str, *, force: bool = True, status_only: bool = False) -> Object:
        """Apply a configuration with server-side apply. Creates the object if it does not exist.

        Raises `ApiError` 409 for a `uid` of another object, and, without `force`, for a field that another manager has
        set to a different value.
        """
        if config["metadata"].get("managedFields"):
            raise _bad("metadata.managedFields must be nil")
        present = self._objects.get(key)
        own = copy.deepcopy(config)
        if present is None:
            made = self.create(key, config)
            self._applied[key] = {manager: own}
            return made
        managers = self._applied.setdefault(key, {})
        if not force and (field := merging.conflict(present, own, managers.get(manager, {}))):
            raise _conflict(key, f"Apply failed with 1 conflict: conflict with another manager: {field}")
        others = [theirs for name, theirs in managers.items() if name != manager]
        merged = merging.apply(present, own, managers.get(manager, {}), others, custom=key.resource.is_custom)
        answer = self._update(key, copy.deepcopy(present), merged, status_only=status_only)
        managers[manager] = own
        return answer

    def delete(self, key: Key, options: Mapping[str, Any]) -> Object:
        """Delete an object, or mark it for deletion if it has finalizers or a grace period.

        Raises `ApiError` 404, and 409 if a precondition fails.
        """
        present = self.get(key)
        metadata = present["metadata"]
        for field, wanted in (options.get("preconditions") or {}).items():
            if metadata.get(field) != wanted:
                raise _conflict(key, f"Precondition failed: {field} in precondition: {wanted}")
        if options.get("propagationPolicy") == "Orphan":
            self._orphan(metadata["uid"])
        grace = self._grace(present, options)
        if not metadata.get("finalizers") and not grace:
            self._remove(key)
            return present
        if "deletionTimestamp" not in metadata:
            metadata |= {"deletionTimestamp": self._stamp(), "deletionGracePeriodSeconds": grace}
            if key.resource.has_generation:
                metadata["generation"] += 1
            return self._put(key, present)
        return present

    # Internal

    def _update(self, key: Key, present: Object, wanted: Object, *, status_only: bool) -> Object:
        """Store the new state of an object. Only changes the part that the path addresses: the object or its status."""
        old, new = present["metadata"], copy.deepcopy(wanted)
        if wanted.get("kind", key.resource.kind) != key.resource.kind or wanted["metadata"].get("name") != key.name:
            raise _bad("the name or kind of the object does not match the one of the URL")
        if new["metadata"].get("uid", old["uid"]) != old["uid"]:
            raise _conflict(key, f"Precondition failed: UID in precondition: {new['metadata']['uid']}")
        if status_only:
            status = new.get("status")
            new = copy.deepcopy(present)
            new.pop("status", None)
            new |= {} if status is None else {"status": status}
        elif key.resource.has_status:
            new.pop("status", None)
            new |= {"status": present["status"]} if "status" in present else {}
        for field in _SERVERS_OWN:
            new["metadata"].pop(field, None)
            new["metadata"] |= {field: old[field]} if field in old else {}
        new["apiVersion"], new["kind"] = key.resource.api_version, key.resource.kind
        if new == present:
            return present
        if refusal := check_update(key.resource, present, new):
            raise ApiError(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", f"{key.resource.kind} {key}: {refusal}")
        if key.resource.has_generation and _specified(new) != _specified(present):
            new["metadata"]["generation"] += 1
        if "deletionTimestamp" in old and not new["metadata"].get("finalizers") and not _awaits_kubelet(new):
            self._objects[key] = new
            self._remove(key)
            return copy.deepcopy(new)
        return self._put(key, new)

    def _put(self, key: Key, new: Object) -> Object:
        self.version += 1
        new["metadata"]["resourceVersion"] = str(self.version)
        before = self._objects.get(key)
        self._objects[key] = new
        for manager, config in self._applied.get(key, {}).items():
            self._applied[key][manager] = merging.agreeing(config, new)
        self._note(Change(version=self.version, key=key, before=before, after=copy.deepcopy(new)))
        return copy.deepcopy(new)

    def _remove(self, key: Key) -> None:
        gone = self._objects.pop(key)
        self._applied.pop(key, None)
        self.version += 1
        before = copy.deepcopy(gone)
        before["metadata"]["resourceVersion"] = str(self.version)
        self._note(Change(version=self.version, key=key, before=before, after=None))
        for dependent in list(self._owned_by(gone["metadata"]["uid"])):
            if not self._owners(dependent, but=gone["metadata"]["uid"]):
                self.delete(dependent, {"propagationPolicy": "Background"})

    def _note(self, change: Change) -> None:
        if len(self.changes) == self.changes.maxlen:
            self.forgotten = self.changes[0].version
        self.changes.append(change)
        for listener in list(self.listeners):
            listener()

    def _owned_by(self, uid: str) -> Iterator[Key]:
        for key, body in self._objects.items():
            if any(owner["uid"] == uid for owner in body["metadata"].get("ownerReferences") or []):
                yield key

    def _owners(self, key: Key, *, but: str) -> Iterable[Object]:
        return [owner for owner in self._objects[key]["metadata"]["ownerReferences"] if owner["uid"] != but]

    def _orphan(self, uid: str) -> None:
        for key in list(self._owned_by(uid)):
            body = copy.deepcopy(self._objects[key])
            body["metadata"]["ownerReferences"] = self._owners(key, but=uid)
            if not body["metadata"]["ownerReferences"]:
                del body["metadata"]["ownerReferences"]
            self._put(key, body)

    def _grace(self, body: Object, options: Mapping[str, Any]) -> int:
        """Return the grace period of a deletion in seconds. A pod on a node exists until a deletion with period 0."""
        if body["kind"] != "Pod" or "nodeName" not in (body.get("spec") or {}):
            return 0
        asked = options.get("gracePeriodSeconds")
        return int(body["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked)

    def _stamp(self) -> str:
        return self._now().strftime("%Y-%m-%dT%H:%M:%SZ")


_SERVERS_OWN: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
    "namespace",
    "managedFields",
)
"""Fields of the metadata that only the API server writes."""
_RESOURCES_BY_KIND: Final = {(one.api_version, one.kind): one for one in RESOURCES}


def key_of(body: Mapping[str, Any]) -> Key:
    """Return the key of an object. Raises `KeyError` for a kind that is not served."""
    metadata = body["metadata"]
    resource = _RESOURCES_BY_KIND[body["apiVersion"], body["kind"]]
    namespace = metadata.get("namespace") or ("default" if resource.namespaced else "")
    return Key(resource=resource, namespace=namespace, name=metadata["name"])


def resource_at(api_version: str, plural: str) -> Resource:
    """Return the resource with this plural. Raises `ApiError` 404 if it is not served."""
    found = BY_PLURAL.get((api_version, plural))
    if found is None:
        raise ApiError(HTTPStatus.NOT_FOUND, "NotFound", "the server could not find the requested resource")
    return found


def _specified(body: Object) -> Object:
    return {field: value for field, value in body.items() if field not in ("metadata", "status")}


def _awaits_kubelet(body: Object) -> bool:
    return body["kind"] == "Pod" and bool(body["metadata"].get("deletionGracePeriodSeconds"))


def _conflict(key: Key, message: str) -> ApiError:
    return ApiError(HTTPStatus.CONFLICT, "Conflict", f"Operation cannot be fulfilled on {key}: {message}")


def _bad(message: str) -> ApiError:
    return ApiError(HTTPStatus.BAD_REQUEST, "BadRequest", message)
