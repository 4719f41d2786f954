"""The port to ZooKeeper that the other packages use: the protocol of the client, its types and its errors.

The controller, the registration and the operator depend on `ZkClient`. `zk/kazoo_client` implements it with kazoo, and
the test kits in memory. All methods and callbacks run on one event loop. Requests are sent in the order of the calls.
Responses, watches and session events arrive in the order in which ZooKeeper sent them, so a read in the callback of a
watch returns at least the change that fired it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple, Protocol

from odradek.base.errors import OdradekError

if TYPE_CHECKING:
    from odradek.security.tls.tls_settings import TlsSettings

MAX_REQUEST_BYTES = 0xFFFFF
"""ZooKeeper's default of `jute.maxbuffer`."""

ANY_VERSION = -1
"""Version in a set, delete or check that matches every version."""


class ZkError(OdradekError):
    """An operation failed in ZooKeeper. `path` is its znode, if there is one."""

    def __init__(self, message: str, path: str = "") -> None:
        """`message` describes the failure. `path` is relative to the chroot."""
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path


class NoNode(ZkError):  # noqa: N818 - ZooKeeper's own name
    """The znode does not exist, or its parent does not."""


class NodeExists(ZkError):  # noqa: N818 - ZooKeeper's own name
    """The znode already exists."""


class BadVersion(ZkError):  # noqa: N818 - ZooKeeper's own name
    """The znode does not have the version that the operation requires."""


class NotEmpty(ZkError):  # noqa: N818 - ZooKeeper's own name
    """The znode has children, so it cannot be deleted."""


class AuthenticationFailed(ZkError):  # noqa: N818 - ZooKeeper's own name
    """The ensemble does not accept this client's credentials, or the znode's ACL does not allow the operation."""


class SessionExpired(ZkError):  # noqa: N818 - ZooKeeper's own name
    """The session expired: its ephemeral znodes are deleted. A new session is being created."""


class ConnectionLost(ZkError):  # noqa: N818 - ZooKeeper's own name
    """No response arrived. It is unknown whether a write was executed."""


class NotSent(ZkError):  # noqa: N818 - says what is the case
    """The request is invalid, so it was not sent. The session is not affected."""


class InvalidPath(NotSent, ValueError):  # noqa: N818 - says what is the case
    """The path is not valid: it is relative, or it has a part that ZooKeeper rejects."""


class TooLarge(NotSent):
    """A write is larger than ZooKeeper accepts. A server would close the connection on which it arrives."""


class ZnodeStat(NamedTuple):
    """The stat of a znode, with ZooKeeper's fields."""

    czxid: int
    """Id of the transaction that created the znode. For a registration, it is the broker epoch."""
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    """Number of changes to the data."""
    cversion: int
    aversion: int
    ephemeral_owner: int
    """Session that owns an ephemeral znode; 0 for a persistent one."""
    data_length: int
    num_children: int
    pzxid: int


class Created(NamedTuple):
    """The result of a create: the path, including the number of a sequential znode, and the stat."""

    path: str
    stat: ZnodeStat


@dataclass(frozen=True, slots=True, kw_only=True)
class ZkSettings:
    """Settings for connecting to the ensemble."""

    connect: str
    """host:port,host:port/chroot"""
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    """Timeout of the first connection."""
    suspended_wait_ms: int = 6_000
    """Maximum wait of an operation for a lost connection to be restored. Then it fails with `ConnectionLost`."""
    max_request_bytes: int = MAX_REQUEST_BYTES
    """Maximum size of a write. It must not exceed `jute.maxbuffer` of the servers."""
    max_in_flight: int = 64
    """Maximum number of concurrent requests of one `get_many`, `children_many` or `multi_many`."""
    digest: tuple[str, str] | None = field(default=None, repr=False)
    """User and password of the digest scheme."""
    sasl: tuple[str, str] | None = field(default=None, repr=False)
    """User and password of SASL DIGEST-MD5."""
    tls: TlsSettings | None = None
    set_acl: bool = False
    """Whether znodes are created with ACLs that allow only one identity to change them (`zk/acl`)."""
    owner: tuple[str, str] | None = None
    """Scheme and name of that identity, such as x509 and the subject of a certificate. None: that of this client."""

    def split(self) -> tuple[str, str]:
        """Return the servers and the chroot without a trailing slash."""
        servers, slash, chroot = self.connect.partition("/")
        return servers, (slash + chroot).rstrip("/")


@dataclass(frozen=True, slots=True)
class Create:
    """Part of a transaction: create a znode. No data differs from empty data, and Kafka's empty znodes have no data."""

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
    """Part of a transaction: check that a znode has the version."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check

_OPERATION_BYTES = 128
"""Upper bound of the size of an operation without path and data: headers, version, flags and ACL."""


def check_size(operations: Sequence[Operation], max_bytes: int, root: str = "") -> None:
    """Raise `TooLarge` if a write with these operations could exceed `max_bytes`. `root` precedes each path."""
    sizes = [_size(operation) + len(root.encode()) for operation in operations]
    total = _OPERATION_BYTES + sum(sizes)
    if total > max_bytes:
        raise TooLarge(
            f"the write has about {total} bytes, but zookeeper.jute.maxbuffer allows only {max_bytes}: make the change "
            "smaller, or raise jute.maxbuffer of the ZooKeeper servers, then zookeeper.jute.maxbuffer of the brokers",
            operations[sizes.index(max(sizes))].path,
        )


def _size(operation: Operation) -> int:
    data = operation.data if isinstance(operation, Create | SetData) else None
    return _OPERATION_BYTES + len(operation.path.encode()) + len(data or b"")


Result = str | ZnodeStat | None
"""The result of an operation: the path for a create, the new stat for a set, otherwise None."""


class SessionState(Enum):
    """State of the session."""

    CONNECTING = auto()
    """The client is not connected yet, or it creates a new session."""
    CONNECTED = auto()
    SUSPENDED = auto()
    """The connection is lost. The session may still be alive."""
    CLOSED = auto()


class SessionEvent(Enum):
    """A change of the session. Events are delivered in order."""

    ESTABLISHED = auto()
    """There is a new session, so this client has no ephemeral znodes."""
    SUSPENDED = auto()
    RESUMED = auto()
    """The same session is connected again. All watches were set again, and each fires once."""
    EXPIRED = auto()
    """The session expired. `ESTABLISHED` follows with a new one."""
    CLOSED = auto()
    """No new session is created, because the client was closed or the ensemble rejects its credentials."""


class Watch(Protocol):
    """A watch that is set until it is cancelled."""

    def cancel(self) -> None:
        """Stop the callbacks. Idempotent."""
        ...


class ZkClient(Protocol):
    """An asynchronous ZooKeeper client. Every operation raises a `ZkError`."""

    @property
    def state(self) -> SessionState:
        """State of the session."""
        ...

    @property
    def session_id(self) -> int:
        """Id of the current or last session; 0 before the first."""
        ...

    async def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        """Read data (empty if there is none) and stat. Raises `NoNode`."""
        ...

    async def get_or_none(self, path: str) -> tuple[bytes, ZnodeStat] | None:
        """Like `get`, but returns None if the znode does not exist."""
        ...

    async def get_many(self, paths: Iterable[str]) -> dict[str, tuple[bytes, ZnodeStat] | None]:
        """Read many znodes like `get_or_none`, with limited pipelining."""
        ...

    async def children(self, path: str) -> list[str]:
        """Read the sorted names of the children. Raises `NoNode`."""
        ...

    async def children_or_none(self, path: str) -> list[str] | None:
        """Like `children`, but returns None if the znode does not exist."""
        ...

    async def children_many(self, paths: Iterable[str]) -> dict[str, list[str] | None]:
        """Read the children of many znodes like `children_or_none`, pipelined."""
        ...

    async def exists(self, path: str) -> ZnodeStat | None:
        """Read the stat. Returns None if the znode does not exist."""
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
        """Create a znode. Raises `NodeExists`, and `NoNode` if the parent does not exist and is not created."""
        ...

    async def ensure_path(self, path: str) -> None:
        """Create the znode and its parents, without data, if they do not exist."""
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> ZnodeStat:
        """Replace the data. Raises `BadVersion`, `NoNode`."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a znode. Raises `NotEmpty`, `BadVersion`, `NoNode`."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Execute all operations or none. Raises the error of the first that failed."""
        ...

    async def multi_many(self, transactions: Iterable[Sequence[Operation]]) -> list[list[Result] | ZkError]:
        """Execute many independent transactions, pipelined. Returns the results or the error of each.

        A lost connection or session is raised. A transaction that is `NotSent` is returned as an error, and the others
        are executed.
        """
        ...

    async def reset_acls(self, paths: Iterable[str]) -> None:
        """Give each znode the ACL with which this client would create it, pipelined. Ignores missing ones."""
        ...

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        """Call `callback` after the znode was created, changed or deleted, and after a reconnection.

        The watch is set again before the callback runs, so a change after a read in the callback causes another
        callback. Several changes in a short time may cause one callback. There can be a callback without a change, but
        not a change without a callback.
        """
        ...

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        """Call `callback` after the set of children changed. The znode does not have to exist yet."""
        ...

    def on_session(self, callback: Callable[[SessionEvent], None]) -> None:
        """Call `callback` with every session event."""
        ...

    async def close(self) -> None:
        """End the session and with it its ephemeral znodes. Idempotent."""
        ...


async def set_or_create(zk: ZkClient, path: str, data: bytes) -> None:
    """Replace the data of a znode, which is created with its parents if necessary. The last of several concurrent calls
    wins."""
    try:
        await zk.set(path, data)
    except NoNode:
        try:
            await zk.create(path, data, make_parents=True)
        except NodeExists:
            await zk.set(path, data)


def parents(path: str) -> list[str]:
    """Return all ancestors of a path except the root, the outermost first. For /a/b/c, they are /a and /a/b."""
    parts = path.strip("/").split("/")[:-1]
    return ["/" + "/".join(parts[: end + 1]) for end in range(len(parts))]
