"""Caches the results of lists, and keeps them up to date with watch events and the answers to the operator's writes.

The cache may lag behind the API server, and it misses deletions that happen while a watch is interrupted. Therefore
nothing is changed because of it alone: see "The cache and fresh reads" in `docs/design/0009-kubernetes.md`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek_operator.kube.api.api_client import KubernetesClient
from odradek_operator.kube.api.object_kinds import Kind, Object, complete, kind_of


class FreshReadNeededError(Exception):
    """The cached objects suggest a change. The decision needs a fresh read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """The arguments of a list request: a kind, a namespace or all, and at most one label or name."""

    kind: Kind
    namespace: str | None = None
    """None for all namespaces, and for cluster-scoped kinds."""
    label: tuple[str, str] | None = None
    """Name and value of a label that the objects have."""
    name: str | None = None
    """Name of the only object."""

    def matches(self, body: Mapping[str, object]) -> bool:
        """Whether an object of this kind is part of the list."""
        metadata = body["metadata"]
        assert isinstance(metadata, Mapping), "the API server sends no object without metadata"
        labels = metadata.get("labels") or {}
        return (
            self.namespace in (None, metadata.get("namespace"))
            and self.name in (None, metadata["name"])
            and (self.label is None or labels.get(self.label[0]) == self.label[1])
        )


class _Answer:
    """The objects of one query."""

    def __init__(self) -> None:
        self.read_at = float("-inf")
        """Time of the loop at which the last list was requested; minus infinity if a list is needed."""
        self._version = 0
        """Version of the last list."""
        self._objects: dict[tuple[str, str], Object] = {}

    def objects(self) -> list[Object]:
        return [self._objects[key] for key in sorted(self._objects)]

    def replace(self, found: list[Object], version: int) -> None:
        """Replace the objects by the result of a list request, except those that events have already made newer."""
        if version < self._version:
            return  # The result of a newer, concurrent list request arrived first.
        newer = {key: body for key, body in self._objects.items() if _version_of(body) > version}
        self._objects = {_key(body): body for body in found} | newer
        self._version = version

    def put(self, body: Object, *, is_part: bool) -> None:
        """Take an object that was created, changed or (not `is_part`) deleted, unless its state is older."""
        key, version = _key(body), _version_of(body)
        present = self._objects.get(key)
        known = self._version if present is None else max(self._version, _version_of(present))
        if is_part and version > known:
            self._objects[key] = body
        elif not is_part and version >= known:
            self._objects.pop(key, None)


class ObjectCache:
    """The lists of one operator. A list is requested once and then kept up to date by `observe`."""

    def __init__(self, client: KubernetesClient) -> None:
        """`client` sends the lists. The answers to its writes, and to those of its copies, update the cache."""
        self._client = client
        self._answers: defaultdict[Kind, dict[ListQuery, _Answer]] = defaultdict(dict)
        client.on_answer(self._wrote)

    async def list(self, query: ListQuery, *, max_age: float) -> list[Object]:
        """Return the objects of a query, with their kind. The caller must not change them.

        `max_age`: seconds after which a list is requested again even though events keep it up to date; 0 for a fresh
        list. Raises `KubernetesError`.
        """
        answer = self._answers[query.kind].setdefault(query, _Answer())
        now = asyncio.get_running_loop().time()
        if max_age <= 0 or now - answer.read_at >= max_age:
            found, version = await self._client.list_with_version(
                query.kind,
                query.namespace,
                selector="" if query.label is None else "=".join(query.label),
                fields="" if query.name is None else f"metadata.name={query.name}",
            )
            answer.replace([_without_ballast(complete(query.kind, body)) for body in found], int(version))
            answer.read_at = now
        return answer.objects()

    async def find(self, query: ListQuery, *, max_age: float) -> Object | None:
        """Return the object of a query with a name; None if it does not exist."""
        return next(iter(await self.list(query, max_age=max_age)), None)

    def observe(self, body: Object, *, deleted: bool) -> None:
        """Take an object from a watch event, with its kind."""
        body = _without_ballast(body)
        for query, answer in self._answers[kind_of(body)].items():
            answer.put(body, is_part=not deleted and query.matches(body))

    def doubt(self, kind: Kind) -> None:
        """Request all lists of the kind again, because a watch has restarted and may have missed deletions."""
        for answer in self._answers[kind].values():
            answer.read_at = float("-inf")

    def forget(self, *queries: ListQuery) -> None:
        """Drop lists that are no longer used."""
        for query in queries:
            self._answers[query.kind].pop(query, None)

    def _wrote(self, body: Object) -> None:
        if (body.get("apiVersion"), body.get("kind")) in _KINDS:  # A deletion may be answered by a `Status`.
            self.observe(body, deleted=False)


_KINDS: Final = frozenset((kind.api_version, kind.word) for kind in Kind)


def _key(body: Object) -> tuple[str, str]:
    return body["metadata"].get("namespace", ""), body["metadata"]["name"]


def _version_of(body: Object) -> int:
    """Return the resource version. Kubernetes guarantees that it is an integer, and increasing per kind (KEP-5504)."""
    return int(body["metadata"]["resourceVersion"])


def _without_ballast(body: Object) -> Object:
    """Remove large fields that the operator never reads: the managers of fields, and the images on a node."""
    body = {**body, "metadata": {key: value for key, value in body["metadata"].items() if key != "managedFields"}}
    if body["kind"] == Kind.NODE.word:
        body["status"] = {key: value for key, value in (body.get("status") or {}).items() if key != "images"}
    return body
