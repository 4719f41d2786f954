"""Guards: they check the rights that a request requires before its handler gets it, and what the answer may show.

A guard wraps the handler of one API. It refuses the whole request with an error, or removes the items that the client
may not use, lets the handler serve the rest, and adds an error for each removed item to the answer. The handler does
not know of it. Errors and their order are those of Kafka's request handler (3.9, ZooKeeper mode).

Invariants: without the right, no handler gets an item, so it cannot change anything or reveal whether it exists; an
item that does not exist is answered as one that the client may not use.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

from odradek.base.errors import (
    ClusterAuthorizationFailedError,
    DelegationTokenAuthorizationFailedError,
    GroupAuthorizationFailedError,
    ProtocolError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
)
from odradek.cluster import ClusterImage
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message
from odradek.security.acls.model import CLUSTER_NAME, AclOperation, ResourceType
from odradek.security.acls.nodes import kafka_name
from odradek.server.authorization.authorizer import Authorizer
from odradek.server.dispatch import Handler, RequestContext
from odradek.server.failures import failure

FAILURES: Final[Mapping[ResourceType, type[ProtocolError]]] = {
    ResourceType.TOPIC: TopicAuthorizationFailedError,
    ResourceType.GROUP: GroupAuthorizationFailedError,
    ResourceType.CLUSTER: ClusterAuthorizationFailedError,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailedError,
    ResourceType.DELEGATION_TOKEN: DelegationTokenAuthorizationFailedError,
    ResourceType.USER: DelegationTokenAuthorizationFailedError,
}


@dataclass(frozen=True, slots=True)
class Access:
    """What the client of one request may do."""

    authorizer: Authorizer
    context: RequestContext
    image: ClusterImage
    """What the broker knows of the cluster: names of topics by their ids, and which partitions exist."""

    def denied(
        self, operation: AclOperation, kind: ResourceType, names: Iterable[str], *, is_logged: bool = True
    ) -> frozenset[str]:
        """Return those of the resources that the client may not use in this way."""
        request = API_TABLE[self.context.api_key].name
        return self.authorizer.denied(self.context.identity, operation, kind, names, request, is_logged=is_logged)

    def allows(self, operation: AclOperation, kind: ResourceType, name: str, *, is_logged: bool = True) -> bool:
        """Whether the client may use a resource in this way."""
        return not self.denied(operation, kind, (name,), is_logged=is_logged)

    def allows_cluster(self, operation: AclOperation, *, is_logged: bool = True) -> bool:
        """Whether the client may do something with the cluster."""
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME, is_logged=is_logged)

    def allows_any(self, operation: AclOperation, kind: ResourceType) -> bool:
        """Whether there may be a resource of this type that the client may use in this way."""
        request = API_TABLE[self.context.api_key].name
        return self.authorizer.allows_any(self.context.identity, operation, kind, request)

    def operations(self, kind: ResourceType, name: str) -> int:
        """Return what the client may do with a resource, as bits."""
        return self.authorizer.operations(self.context.identity, kind, name)

    def require(self, operation: AclOperation, kind: ResourceType, name: str) -> None:
        """Raise the authorization error of the type of resource unless the client may use it in this way."""
        if not self.allows(operation, kind, name):
            raise refusal(operation, kind)

    def failure(self, request: object, error: ProtocolError) -> Message:
        """Return the answer to a request, or the part of one, that the client may not make."""
        answer = failure(self.context.api_key, self.context.api_version, request, error)
        assert answer is not None, "these errors have an answer in every API with items"
        return answer


def refusal(operation: AclOperation, kind: ResourceType) -> ProtocolError:
    """Return the error of a client that may not use resources of a type in this way. It names no resource."""
    what = "the cluster" if kind is ResourceType.CLUSTER else f"this {kind.name.lower().replace('_', ' ')}"
    return FAILURES[kind](f"Not authorized: the operation {kafka_name(operation)} on {what} is required.")


Req = TypeVar("Req")
Item = TypeVar("Item")
Proceed = Callable[[Req], Awaitable[Message]]
"""The handler, for the request or what is left of it."""
Guard = Callable[[Access, Any, Proceed[Any]], Awaitable[Message]]


@dataclass(frozen=True, slots=True)
class Items(Generic[Req, Item]):
    """The items of a request, each of which is about one resource, and where their answers are."""

    of: Callable[[Req], Iterable[Item]]
    name: Callable[[Item], str]
    keep: Callable[[Req, tuple[Item, ...]], Req]
    """Returns a request with only these items."""
    answers: str
    """Field of the response."""

    async def serve(
        self, access: Access, request: Req, proceed: Proceed[Req], denied: frozenset[str], error: ProtocolError
    ) -> Message:
        """Serve the items whose names are not in `denied`, and answer the others with the error."""
        if not denied:
            return await proceed(request)
        items = tuple(self.of(request))
        served = tuple(item for item in items if self.name(item) not in denied)
        refused = self.keep(request, tuple(item for item in items if self.name(item) in denied))
        failed = access.failure(refused, error)
        return failed if not served else joined(await proceed(self.keep(request, served)), failed, self.answers)


def joined(answer: Message, other: Message, field: str) -> Message:
    """Return an answer with the rows of another one appended to those of a field."""
    rows, more = cast(Iterable[object], answer[field]), cast(Iterable[object], other[field])
    return {**answer, field: [*rows, *more]}


def rows_of(answer: Message, field: str) -> list[Message]:
    """Return the rows in a field of an answer."""
    return list(cast(Iterable[Message], answer[field]))


async def unguarded(access: Access, request: object, proceed: Proceed[object]) -> Message:
    """Everyone may make the request."""
    return await proceed(request)


def on_cluster(operation: AclOperation) -> Guard:
    """Require a right on the cluster."""

    async def guard(access: Access, request: object, proceed: Proceed[object]) -> Message:
        access.require(operation, ResourceType.CLUSTER, CLUSTER_NAME)
        return await proceed(request)

    return guard


def on_one(operation: AclOperation, kind: ResourceType, name: Callable[[Any], str]) -> Guard:
    """Require a right on the resource that the request names."""

    async def guard(access: Access, request: object, proceed: Proceed[object]) -> Message:
        access.require(operation, kind, name(request))
        return await proceed(request)

    return guard


def on_each(operation: AclOperation, kind: ResourceType, items: Items[Any, Any]) -> Guard:
    """Require a right on the resource of each item."""
    error = refusal(operation, kind)

    async def guard(access: Access, request: object, proceed: Proceed[object]) -> Message:
        denied = access.denied(operation, kind, dict.fromkeys(map(items.name, items.of(request))))
        return await items.serve(access, request, proceed, denied, error)

    return guard


def guarded(
    handlers: Mapping[ApiKey, Handler],
    guards: Mapping[ApiKey, Guard],
    authorizer: Authorizer,
    image: Callable[[], ClusterImage],
) -> dict[ApiKey, Handler]:
    """Return the handlers behind their guards. Raises `ValueError` if an API has no guard."""
    missing = handlers.keys() - guards.keys()
    if missing:
        raise ValueError(f"no guards for {sorted(missing)}")

    def behind(guard: Guard, handler: Handler) -> Handler:
        async def serve(context: RequestContext, request: object) -> Message:
            access = Access(authorizer, context, image())
            return await guard(access, request, lambda rest: handler(context, rest))

        return serve

    return {
        key: handler if guards[key] is unguarded else behind(guards[key], handler) for key, handler in handlers.items()
    }
