"""What the packages above need of ZooKeeper: a protocol, its values and its errors.

The controller, the registration and the operator are written against `ZkClient`; `zk/client` fills it with kazoo, and a
test kit may fill it from memory. Everything happens on one event loop. Requests are sent in the order of the calls, and
answers, watches and session events arrive in the order in which ZooKeeper sent them: whoever re-reads on a watch sees
at least the state that fired it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple, Protocol

from odradek.base.errors import OdradekError

MAX_REQUEST_BYTES = 0xFFFFF
"""ZooKeeper's own default of `jute.maxbuffer`."""

ANY_VERSION = -1
"""Version of a set, delete or check that accepts every version."""


class ZkError(OdradekError):
    """ZooKeeper refused an operation; `path` is the znode it concerned, where there is one."""

    def __init__(self, message: str, path: str = "") -> None:
        """`message` is a sentence; `path` is relative to the chroot."""
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path


class NoNode(ZkError):  # noqa: N818 - ZooKeeper's own name
    """There is no such znode, or its parent is missing."""


class NodeExists(ZkError):  # noqa: N818 - ZooKeeper's own name
    """There is such a znode already."""


class BadVersion(ZkError):  # noqa: N818 - ZooKeeper's own name
    """The znode has another version than the operation asks for."""


class NotEmpty(ZkError):  # noqa: N818 - ZooKeeper's own name
    """The znode has children, so it cannot be deleted."""


class AuthenticationFailed(ZkError):  # noqa: N818 - ZooKeeper's own name
    """The ensemble does not accept our credentials, or the znode's list does not allow us the operation."""


class SessionExpired(ZkError):  # noqa: N818 - ZooKeeper's own name
    """The session is over: its ephemeral znodes are gone. A new one is being made."""


class ConnectionLost(ZkError):  # noqa: N818 - ZooKeeper's own name
    """No answer came. A write may have been carried out or not."""


class NotSent(ZkError):  # noqa: N818 - says what is the case
    """The request itself is wrong, so nothing was sent; the session is not concerned."""


class InvalidPath(NotSent, ValueError):  # noqa: N818 - says what is the case
    """Not the path of a znode: relative, or with a part that ZooKeeper refuses."""


class TooLarge(NotSent):
    """A write is larger than ZooKeeper accepts. A server ends the connection of a client that sends such a request."""


class ZnodeStat(NamedTuple):
    """A znode's bookkeeping, field by field as ZooKeeper keeps it."""

    czxid: int
    """Transaction that created it; the broker epoch of a registration."""
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    """Number of changes of the data."""
    cversion: int
    aversion: int
    ephemeral_owner: int
    """Session that it lives and dies with; 0 when it is persistent."""
    data_length: int
    num_children: int
    pzxid: int


class Created(NamedTuple):
    """Answer to a create: the path, with the number of a sequential znode, and the stat."""

    path: str
    stat: ZnodeStat


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """How to speak TLS with the ensemble. Files are in PEM form."""

    truststore_location: str | None = None
    """Certificates that are trusted, and revocation lists; None for those of the system."""
    keystore_location: str | None = None
    """Our private key and certificates; None when we have none."""
    keystore_password: str | None = field(default=None, repr=False)
    verify_host_name: bool = True
    """Whether the server's certificate must be for the name or address of the connect string."""
    protocols: tuple[str, ...] = ("TLSv1.2",)
    """Of TLSv1.2 and TLSv1.3 at least one."""
    cipher_suites: tuple[str, ...] = ()
    """Suites of TLS 1.2 by Java's or OpenSSL's names; none: OpenSSL's choice."""
    check_revocation: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ZkSettings:
    """How to reach the ensemble."""

    connect: str
    """host:port,host:port/chroot"""
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    """Longest wait for the first connection."""
    suspended_wait_ms: int = 6_000
    """Longest wait of an operation for a lost connection to come back before it fails with `ConnectionLost`."""
    max_request_bytes: int = MAX_REQUEST_BYTES
    """Size of the largest write; at most the servers' `jute.maxbuffer`."""
    max_in_flight: int = 64
    """Requests of one `get_many`, `children_many` or `multi_many` that are under way at once."""
    digest: tuple[str, str] | None = field(default=None, repr=False)
    """User and password of the digest scheme."""
    sasl: tuple[str, str] | None = field(default=None, repr=False)
    """User and password of SASL DIGEST-MD5."""
    tls: TlsSettings | None = None
    set_acl: bool = False
    """Whether znodes are made such that only our identity may change them (`zk/acl`)."""

    def split(self) -> tuple[str, str]:
        """(servers, chroot without a slash at its end)."""
        servers, slash, chroot = self.connect.partition("/")
        return servers, (slash + chroot).rstrip("/")


@dataclass(frozen=True, slots=True)
class Create:
    """Part of a transaction: make a znode. No data and empty data differ; Kafka's empty znodes have none."""

    path: str
    data: bytes | None = None
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Part of a transaction: replace a znode's data if it has the version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Part of a transaction: remove a znode if it has the version."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Part of a transaction: demand that a znode has the version."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check

_OPERATION_BYTES = 128
"""Upper bound of what an operation takes besides path and data: headers, version, flags and access list."""


def check_size(operations: Sequence[Operation], max_bytes: int, root: str = "") -> None:
    """Raise `TooLarge` if a write of these operations could take more than `max_bytes`. `root` precedes each path."""
    sizes = [_size(operation) + len(root.encode()) for operation in operations]
    total = _OPERATION_BYTES + sum(sizes)
    if total > max_bytes:
        raise TooLarge(
            f"the write takes about {total} bytes and zookeeper.jute.maxbuffer allows {max_bytes}: make the change "
            "smaller, or raise jute.maxbuffer of the ZooKeeper servers, then zookeeper.jute.maxbuffer of the brokers",
            operations[sizes.index(max(sizes))].path,
        )


def _size(operation: Operation) -> int:
    data = operation.data if isinstance(operation, Create | SetData) else None
    return _OPERATION_BYTES + len(operation.path.encode()) + len(data or b"")


Result = str | ZnodeStat | None
"""Of a create its path, of a set the new stat, else None."""


class SessionState(Enum):
    """What is known of the session."""

    CONNECTING = auto()
    """Not connected yet, or a new session is being made."""
    CONNECTED = auto()
    SUSPENDED = auto()
    """The connection is lost; the session may live on."""
    CLOSED = auto()


class SessionEvent(Enum):
    """What happened to the session; delivered in order."""

    ESTABLISHED = auto()
    """A new session: nothing ephemeral of ours exists."""
    SUSPENDED = auto()
    RESUMED = auto()
    """The same session is back; watches were re-armed and fire once each."""
    EXPIRED = auto()
    """The session is over; `ESTABLISHED` follows when a new one stands."""
    CLOSED = auto()
    """No further session will be made: closed here, or the ensemble refuses our credentials."""


class Watch(Protocol):
    """A standing watch."""

    def cancel(self) -> None:
        """Call back no more; idempotent."""
        ...


class ZkClient(Protocol):
    """An asynchronous ZooKeeper client. Every operation raises a `ZkError`."""

    @property
    def state(self) -> SessionState:
        """What is known of the session now."""
        ...

    @property
    def session_id(self) -> int:
        """Id of the current or last session, 0 before the first."""
        ...

    async def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        """Data (empty when there is none) and stat; `NoNode`."""
        ...

    async def get_or_none(self, path: str) -> tuple[bytes, ZnodeStat] | None:
        """Like `get`; None when there is no such znode."""
        ...

    async def get_many(self, paths: Iterable[str]) -> dict[str, tuple[bytes, ZnodeStat] | None]:
        """`get_or_none` of many, pipelined with a bound on what is in flight."""
        ...

    async def children(self, path: str) -> list[str]:
        """Names of the children, sorted; `NoNode`."""
        ...

    async def children_or_none(self, path: str) -> list[str] | None:
        """Like `children`; None when there is no such znode."""
        ...

    async def children_many(self, paths: Iterable[str]) -> dict[str, list[str] | None]:
        """`children_or_none` of many, pipelined."""
        ...

    async def exists(self, path: str) -> ZnodeStat | None:
        """The stat, None when there is no such znode."""
        ...

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> Created:
        """Make a znode; `NodeExists`, or `NoNode` when the parent is missing and shall not be made."""
        ...

    async def ensure_path(self, path: str) -> None:
        """Make the znode and its parents, each without data, where they are missing."""
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> ZnodeStat:
        """Replace the data; `BadVersion`, `NoNode`."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Remove a znode; `NotEmpty`, `BadVersion`, `NoNode`."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """All operations or none. Raises the error of the first that failed."""
        ...

    async def multi_many(self, transactions: Iterable[Sequence[Operation]]) -> list[list[Result] | ZkError]:
        """Many transactions, pipelined; each stands alone. A lost connection or session is raised, not listed.

        One that is `NotSent` is listed, and the others are carried out.
        """
        ...

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        """Call back after the znode was made, changed or deleted, and after a reconnection.

        The watch is armed again before the callback runs, so that a read in it misses nothing. Changes in quick
        succession may be told once; a callback without a change is possible, a change without a callback is not.
        """
        ...

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        """The same for the set of children; the znode need not exist yet."""
        ...

    def on_session(self, callback: Callable[[SessionEvent], None]) -> None:
        """Call back on every session event from now on."""
        ...

    async def close(self) -> None:
        """End the session; its ephemeral znodes go. Idempotent."""
        ...


def parents(path: str) -> list[str]:
    """Every ancestor of a path but the root, outermost first: of /a/b/c are that /a and /a/b."""
    parts = path.strip("/").split("/")[:-1]
    return ["/" + "/".join(parts[: end + 1]) for end in range(len(parts))]
