"""The requests and responses of the Kubernetes API over a `Store`, without a transport.

A request is an `Asked`: method, path, query and body. The response is a status and a document. `server` serves requests
over HTTP, including watches, and `client` within the process. All writes are logged. `faults` apply to both transports.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from typing import Any, Final

from odradek_operator.kube.api.api_client import SERVICE_ACCOUNT_KEYS
from odradek_operator.kube.api.object_kinds import Kind
from odradek_operator_testkit.resources import Object, Resource, discovery
from odradek_operator_testkit.selectors import field_matcher, matcher
from odradek_operator_testkit.store import ApiError, Key, Store, key_of, resource_at

_PATH: Final = re.compile(
    r"/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+/[^/]+))"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]+))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?"
)
_FIELDS: Final = frozenset({"metadata.name", "metadata.namespace"})
_EVENT_FIELDS: Final = _FIELDS | {"involvedObject.kind", "involvedObject.name", "involvedObject.uid", "reason", "type"}
MERGE: Final = "application/merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    body: Any = None

    @property
    def is_write(self) -> bool:
        """Whether the request is a write."""
        return self.method != "GET"

    @property
    def is_watch(self) -> bool:
        """Whether the request is a watch, whose response is a stream."""
        return self.method == "GET" and self.query.get("watch") in ("true", "1")


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to a request that is not a watch."""

    status: int
    document: Object


@dataclass(frozen=True, slots=True)
class Place:
    """The parsed path of a request."""

    resource: Resource
    namespace: str | None
    name: str | None
    sub: str | None

    def key(self, name: str) -> Key:
        """Return the key of the object with this name."""
        namespace = self.namespace or ("default" if self.resource.namespaced else "")
        return Key(resource=self.resource, namespace=namespace, name=name)


@dataclass(slots=True)
class Faults:
    """The faults of the server. Tests change them at any time."""

    refuses: bool = False
    """Whether the server accepts no connections and answers no requests."""
    status: int = 0
    """Status with which all requests are rejected; 0 for none."""
    delay_seconds: float = 0.0
    """Delay before each response."""
    loses_answers: bool = False
    """Whether requests are executed, but the connection is closed before the response."""
    concerns: Callable[[Asked], bool] = field(default=lambda asked: True)
    """Selects the requests to which `status`, `delay_seconds` and `loses_answers` apply."""


class KubernetesApi:
    """An API server."""

    def __init__(self, store: Store | None = None) -> None:
        """Create a server with an empty store, unless one is given."""
        self.store: Final = store or Store()
        self.faults: Final = Faults()
        self.writes: Final[list[Asked]] = []
        """All writes that were executed, including those without a change."""
        self.reads: Final[list[Asked]] = []
        """Every request that only reads, watches included."""
        self.token_keys: list[Object] | None = [{"kty": "RSA", "kid": "one", "use": "sig", "alg": "RS256"}]
        """The keys that verify tokens of ServiceAccounts; None if the client must not read them."""
        self.before_write: Callable[[Asked], None] = lambda asked: None
        """Called before each write. Its exceptions are raised to the caller of the request."""
        self._pages: dict[str, tuple[int, list[Object]]] = {}
        self._page_numbers = count(1)

    def answer(self, asked: Asked) -> Answer:
        """Execute a request that is not a watch, and return the response."""
        try:
            if self.faults.status and self.faults.concerns(asked):
                status = HTTPStatus(self.faults.status)
                raise ApiError(status, status.phrase.replace(" ", ""), "a test made the API server answer this")
            found = discovery(asked.path) if asked.method == "GET" else None
            if found is not None:
                return Answer(HTTPStatus.OK, found)
            if asked.path == SERVICE_ACCOUNT_KEYS and asked.method == "GET":
                return self._keys()
            place = self.place(asked.path)
            if asked.is_write:
                self.before_write(asked)
                answer = self._write(asked, place)
                self.writes.append(asked)
                return answer
            self.reads.append(asked)
            return Answer(HTTPStatus.OK, self._read(asked, place))
        except ApiError as error:
            return Answer(error.status, error.document())

    def lists(self) -> list[str]:
        """Return the plural names of the kinds that were listed, in the order of the requests."""
        places = [self.place(asked.path) for asked in self.reads if not asked.is_watch]
        return [place.resource.plural for place in places if place.name is None]

    def place(self, path: str) -> Place:
        """Parse a path. Raises `ApiError` 404 if the resource is not served."""
        found = _PATH.fullmatch(path)
        if found is None:
            raise ApiError(HTTPStatus.NOT_FOUND, "NotFound", "the server could not find the requested resource")
        resource = resource_at(found["core"] or found["group"], found["plural"])
        if not resource.namespaced and found["namespace"] is not None:
            raise ApiError(HTTPStatus.NOT_FOUND, "NotFound", "the server could not find the requested resource")
        if found["sub"] and (found["sub"] != "status" or not resource.has_status):
            raise ApiError(HTTPStatus.NOT_FOUND, "NotFound", "the server could not find the requested resource")
        return Place(resource, found["namespace"], found["name"], found["sub"])

    # Reads

    def _keys(self) -> Answer:
        if self.token_keys is None:
            raise ApiError(HTTPStatus.FORBIDDEN, "Forbidden", f"cannot get path {SERVICE_ACCOUNT_KEYS}")
        return Answer(HTTPStatus.OK, {"keys": self.token_keys})

    def _read(self, asked: Asked, place: Place) -> Object:
        if place.name is not None:
            return self.store.get(place.key(place.name))
        if token := asked.query.get("continue"):
            return self._page(place, token, asked)
        chosen = selection(asked, place.resource)
        items = [body for body in self.store.all(place.resource, place.namespace) if chosen(body)]
        if not place.resource.is_custom:
            items = [{k: v for k, v in body.items() if k not in ("apiVersion", "kind")} for body in items]
        token = str(next(self._page_numbers))
        self._pages[token] = (self.store.version, items)
        return self._page(place, token, asked)

    def _page(self, place: Place, token: str, asked: Asked) -> Object:
        """Return the next page of a list. All pages show the state at the time of the first one."""
        if token not in self._pages:
            raise ApiError(HTTPStatus.GONE, "Expired", "The provided continue parameter is too old")
        version, items = self._pages.pop(token)
        limit = int(asked.query.get("limit") or 0) or len(items)
        metadata: Object = {"resourceVersion": str(version)}
        if len(items) > limit:
            following = str(next(self._page_numbers))
            self._pages[following] = (version, items[limit:])
            metadata |= {"continue": following, "remainingItemCount": len(items) - limit}
        return {
            "kind": f"{place.resource.kind}List",
            "apiVersion": place.resource.api_version,
            "metadata": metadata,
            "items": items[:limit],
        }

    # Writes

    def _write(self, asked: Asked, place: Place) -> Answer:
        if asked.method == "POST" and place.name is None:
            return Answer(HTTPStatus.CREATED, self.store.create(self._key(asked, place), asked.body))
        if place.name is None:
            raise ApiError(HTTPStatus.METHOD_NOT_ALLOWED, "MethodNotAllowed", "not on a collection")
        key, status_only = place.key(place.name), place.sub == "status"
        match asked.method, asked.content_type:
            case "PUT", _:
                if self._key(asked, place) != key:
                    raise ApiError(HTTPStatus.BAD_REQUEST, "BadRequest", "the name of the object is not the URL's")
                return Answer(HTTPStatus.OK, self.store.replace(key, asked.body, status_only=status_only))
            case "PATCH", "application/merge-patch+json":
                return Answer(HTTPStatus.OK, self.store.merge(key, asked.body, status_only=status_only))
            case "PATCH", "application/apply-patch+yaml":
                return self._apply(asked, place, key)
            case "DELETE", _:
                return Answer(HTTPStatus.OK, self.store.delete(key, asked.body or {}))
            case method, content_type:
                raise ApiError(
                    HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", f"{method} with {content_type}"
                )

    def _apply(self, asked: Asked, place: Place, key: Key) -> Answer:
        if self._key(asked, place) != key:
            raise ApiError(HTTPStatus.BAD_REQUEST, "BadRequest", "the name of the object is not the URL's")
        manager = asked.query.get("fieldManager", "")
        if not manager:
            raise ApiError(HTTPStatus.BAD_REQUEST, "BadRequest", "PatchOptions: fieldManager is required for apply")
        is_new = self.store.find(key) is None
        is_forced = asked.query.get("force") == "true"
        body = self.store.apply(key, asked.body, manager, force=is_forced, status_only=place.sub == "status")
        return Answer(HTTPStatus.CREATED if is_new else HTTPStatus.OK, body)

    def _key(self, asked: Asked, place: Place) -> Key:
        """Return the key of the object in the body. Its kind and namespace must be those of the path."""
        body = asked.body
        if not isinstance(body, dict) or not (body.get("metadata") or {}).get("name"):
            raise ApiError(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", "metadata.name: Required value")
        identity = (body.get("apiVersion"), body.get("kind"))
        if identity != (place.resource.api_version, place.resource.kind):
            raise ApiError(HTTPStatus.BAD_REQUEST, "BadRequest", f"{identity} is not {place.resource.kind}")
        key = place.key(body["metadata"]["name"])
        if place.resource.namespaced and body["metadata"].get("namespace", key.namespace) != key.namespace:
            raise ApiError(HTTPStatus.BAD_REQUEST, "BadRequest", "the namespace of the object is not the URL's")
        return key

    # For tests

    def put(self, body: Object) -> Object:
        """Create an object with its status, as another client would."""
        key = key_of(body)
        made = self.store.create(key, json.loads(json.dumps(body)))
        if "status" in body and key.resource.has_status:
            made = self.store.merge(key, {"status": body["status"]}, status_only=True)
        return made


def selection(asked: Asked, resource: Resource) -> Callable[[Object | None], bool]:
    """Whether an object matches the label and field selectors. Raises `ApiError` for an invalid selector."""
    selectable = _EVENT_FIELDS if resource.kind == Kind.EVENT.word else _FIELDS
    try:
        matches = matcher(asked.query.get("labelSelector", ""))
        fits = field_matcher(asked.query.get("fieldSelector", ""), selectable)
    except ValueError as error:
        raise ApiError(HTTPStatus.BAD_REQUEST, "BadRequest", str(error)) from error
    return lambda body: body is not None and matches(body["metadata"].get("labels") or {}) and fits(body)
