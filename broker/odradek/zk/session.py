"""Modifies kazoo's session: it is connected only after authentication, and callbacks run on the event loop.

`zk/kazoo_client` sends its requests with it. `end_session` ends the session of a dead broker process. Changes to kazoo:

- TLS uses a context that is created here. kazoo's cannot set protocols or cipher suites and always trusts the system's
CAs.
- SASL DIGEST-MD5 uses `security_digest`. kazoo's implementation needs a package that has had no release since 2019.
- The session is reported as connected when the credentials are accepted. If they are rejected before any server has
accepted them, the client is closed. If they are rejected later, one server is probably misconfigured, and the next
one is tried, as in Kafka.
- While the connection is lost, requests fail immediately instead of being queued without limit. A connection attempt
has a short timeout, so that the next server is tried. Patroni does the same in its `dcs/zookeeper.py`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable
from threading import Lock, RLock
from typing import Any, Final

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol import serialization
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

from odradek.base.errors import ConfigError
from odradek.security.tls.contexts import client_context
from odradek.security.tls.tls_settings import TlsSettings
from odradek.zk.multi_read import MultiRead
from odradek.zk.port import ZkError, ZkSettings
from odradek.zk.security_digest import DigestError, DigestLogin
from odradek.zk.security_tls import explain

log = logging.getLogger(__name__)

_NONCE_BYTES: Final = 18
_END_PER_SERVER_MS: Final = 2_000.0
_MIN_CONNECT_S: Final = 1.0
_PROBE_XID: Final = 1
"""Id of the request that is sent before all others."""
AUTHENTICATION_REQUIRED: Final = (
    "the ensemble requires authentication: set zookeeper.sasl.jaas.config or another identity that it accepts"
)
_CONNECTED: Final = (KeeperState.CONNECTED, KeeperState.CONNECTED_RO)


class LoopQueue:
    """Replaces kazoo's callback queues. Any thread can add callbacks, and they run on the event loop, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Create a queue whose callbacks run on `loop`."""
        self._loop = loop
        self._pending: deque[Callable[[], object]] = deque()
        self._lock = Lock()
        self._scheduled = False

    def put(self, callback: Callable[[], object]) -> None:
        """Run `callback` on the event loop after all earlier ones. Several callbacks wake the event loop only once."""
        with self._lock:
            self._pending.append(callback)
            if self._scheduled or self._loop.is_closed():
                return
            self._scheduled = True
            self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        with self._lock:
            self._scheduled = False
            callbacks, self._pending = self._pending, deque()
        for callback in callbacks:
            try:
                callback()
            except Exception:
                # The queue carries all responses and session events, so a failing callback must not stop it.
                log.exception("a ZooKeeper callback failed")


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Adds TLS and a limited wait for each server to kazoo's handler."""

    def __init__(self, tls: TlsSettings | None, connect_timeout_s: float) -> None:
        """`connect_timeout_s` is the timeout of one connection attempt."""
        super().__init__()
        self._tls = tls
        self._connect_timeout_s = connect_timeout_s

    def create_connection(self, *args: Any, **options: Any) -> Any:
        """Return a connected socket. Raises `OSError` on failure or timeout."""
        timeout_s = min(self._connect_timeout_s, options.get("timeout") or self._connect_timeout_s)
        if self._tls is None:
            return super().create_connection(*args, **{**options, "timeout": timeout_s})
        try:
            context = client_context(self._tls)
        except ConfigError as error:
            # The files were valid at start, so they are probably being replaced. The next attempt reads them again.
            raise OSError(str(error)) from error
        plain = socket.create_connection(options["address"], timeout_s)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return context.wrap_socket(plain, server_hostname=options["hostname"])
        except BaseException:
            plain.close()
            raise

    def select(self, readers: Any, writers: Any, others: Any, timeout: float | None = None) -> Any:
        """Wait for sockets. A socket for which TLS has already decrypted bytes is ready, although the system does not
        know it.

        Each socket is waited for in one direction. kazoo's implementation creates an epoll object, with three
        system calls, for each of the four waits of a request, which is half of the cost of a request.
        """
        held = [each for each in readers if isinstance(each, ssl.SSLSocket) and each.pending()]
        poll = select.poll()
        for each in readers:
            poll.register(each, select.POLLIN)
        for each in writers:
            poll.register(each, select.POLLOUT)
        limit_ms = 0.0 if held else None if timeout is None else max(0.0, timeout * 1000)
        ready = {number for number, _ in poll.poll(limit_ms)}
        readable = [each for each in readers if each in held or each.fileno() in ready]
        return readable, [each for each in writers if each.fileno() in ready], []


class LoopHandler(Handler):
    """Runs callbacks on the event loop instead of kazoo's two threads, so that all callbacks are in one order."""

    def __init__(self, tls: TlsSettings | None, connect_timeout_s: float, queue: LoopQueue) -> None:
        """`queue` gets the callbacks."""
        super().__init__(tls, connect_timeout_s)
        self.completion_queue = queue
        self.callback_queue = queue

    @property
    def running(self) -> bool:
        """Return True. Otherwise kazoo would run callbacks on the current thread."""
        return True

    def start(self) -> None:
        """Do nothing: there are no threads to start."""

    def stop(self) -> None:
        """Do nothing: there are no threads to stop."""


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """Adds this module's login to kazoo's connection, and stores the reason why the last attempt failed."""

    def __init__(self, client: Kazoo, sasl: tuple[str, str] | None, **options: Any) -> None:
        # kazoo only checks whether SASL options exist before it calls `_authenticate_with_sasl`.
        super().__init__(client, sasl_options=None if sasl is None else {}, **options)
        self._login = sasl or ("", "")

    def _connect(self, host: str, hostip: str, port: int) -> Any:
        client = self.client
        client.is_opening = True
        try:
            timeouts = super()._connect(host, hostip, port)
            if client.reads_groups and not self._knows_multi_read(timeouts[1] / 1000):
                log.info("ZooKeeper at %s:%d is older than 3.6: znodes are read in separate requests", host, port)
                client.reads_groups = False
                self._socket.close()  # the server does the same
                timeouts = super()._connect(host, hostip, port)
        except kazoo_errors.AuthFailedError as error:
            client.note_failure(f"{host}:{port}: {error or 'it rejects the credentials of this client'}")
            if client.was_accepted:
                raise kazoo_errors.ConnectionDropped(client.failure) from error
            raise
        except Exception as error:
            client.note_failure(f"{host}:{port}: {explain(_root_of(error))}")
            raise
        finally:
            client.is_opening = False
        client.opened()
        return timeouts

    def _knows_multi_read(self, timeout: float) -> bool:
        """Return whether the server supports this type of request. Older servers respond to an empty request with an
        error or close the connection."""
        try:
            self._submit(MultiRead(()), timeout, _PROBE_XID)
            header, _, _ = self._read_header(timeout)
        except kazoo_errors.ConnectionDropped:
            return False
        if header.err == kazoo_errors.SessionClosedRequireSaslError.code:
            raise kazoo_errors.AuthFailedError(AUTHENTICATION_REQUIRED)
        known: bool = header.err != kazoo_errors.UnimplementedError.code
        return known

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        username, password = self._login
        login = DigestLogin(username, password, secrets.token_urlsafe(_NONCE_BYTES))
        challenge = self._exchange_token(1, b"", timeout)
        if challenge is None:
            raise kazoo_errors.AuthFailedError("it does not support SASL: its JAAS configuration has no section Server")
        try:
            proof = self._exchange_token(2, login.respond(challenge), timeout)
            login.verify(proof or b"")
        except DigestError as error:
            raise kazoo_errors.AuthFailedError(str(error)) from error

    def _exchange_token(self, number: int, token: bytes, timeout: float) -> bytes | None:
        """Send a SASL token. Return the server's token; None if it does not support SASL."""
        self._submit(serialization.SASL(token), timeout, number)
        header, frame, position = self._read_header(timeout)
        if header.err:
            raise kazoo_errors.AuthFailedError("it rejects the user and the password of zookeeper.sasl.jaas.config")
        answer: bytes | None = serialization.SASL.deserialize(frame, position)[0]
        return answer


def _root_of(error: BaseException) -> BaseException:
    """Return the cause of an error: kazoo wraps errors of the system or of TLS in the error of a lost connection."""
    inner = error.__context__
    return inner if isinstance(error, kazoo_errors.ConnectionDropped) and inner is not None else error


class Kazoo(KazooClient):  # type: ignore[misc]
    """kazoo's client with the handler and the connection of this module. `failure` is the reason of the last
    failure."""

    def __init__(
        self,
        settings: ZkSettings,
        handler: Handler,
        report: Callable[[str, int], None] = lambda state, session_id: None,
        **options: Any,
    ) -> None:
        """`report` gets each state and the id of the session, on kazoo's thread. Paths do not include the chroot."""
        self._report = report
        self.failure = ""
        self._logged: set[str] = set()
        self.was_accepted = False
        """Whether the ensemble has ever accepted the credentials."""
        self.is_opening = False
        self.reads_groups = True
        """Whether the servers support `MultiRead`. This is assumed until a server does not."""
        self._opened_state = KeeperState.CONNECTED
        # The state must not change between its check and the queueing of a request. Otherwise the request could be sent
        # although it was reported as failed.
        self._gate = RLock()
        super().__init__(
            hosts=settings.split()[0],
            handler=handler,
            use_ssl=settings.tls is not None,
            auth_data=None if settings.digest is None else [("digest", ":".join(settings.digest))],
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=1.0),
            **options,
        )
        self._connection = _Connection(self, settings.sasl, retry_sleeper=self._conn_retry.copy(), logger=self.logger)

    def _call(self, request: Any, async_object: Any) -> Any:
        with self._gate:
            if self._state == KeeperState.CONNECTING:
                async_object.set_exception(kazoo_errors.ConnectionLoss())
                return False
            return super()._call(request, async_object)

    def _session_callback(self, state: str) -> None:
        if self.is_opening and state in _CONNECTED:
            self._opened_state = state  # kazoo reports this state before it authenticates
            return
        with self._gate:
            session_id = self._session_id or 0
            super()._session_callback(state)
            self._report(state, session_id)

    def note_failure(self, reason: str) -> None:
        """Log a failed connection attempt. Each reason is logged once per lost connection."""
        self.failure = reason
        if reason not in self._logged:
            self._logged.add(reason)
            log.warning("no connection to ZooKeeper at %s", reason)

    def opened(self) -> None:
        """Report the session as connected: the connection is established and the credentials are accepted."""
        self.failure, self.was_accepted = "", True
        self._logged.clear()
        self._session_callback(self._opened_state)


def connect_timeout_s(session_timeout_ms: float, servers: int) -> float:
    """Return the connection timeout for each server, so short that others can be tried before the session expires."""
    return max(_MIN_CONNECT_S, session_timeout_ms / 1000 / 3 / max(1, servers))


def end_session(settings: ZkSettings, credentials: tuple[int, bytes], *, timeout_ms: float) -> None:
    """Connect with the session of the dead process and close it. Blocks for at most about `timeout_ms`.

    `settings` are those of the dead broker. Raises `ZkError` if no server accepts the session in time. The session then
    expires after its timeout.
    """
    client = Kazoo(
        settings,
        Handler(settings.tls, _END_PER_SERVER_MS / 1000),
        client_id=credentials,
        timeout=max(_END_PER_SERVER_MS, timeout_ms) / 1000,
    )
    try:
        client.start(timeout=timeout_ms / 1000)
    except (kazoo_errors.KazooException, KazooTimeoutError) as error:
        servers = settings.split()[0]
        reason = f" ({client.failure})" if client.failure else ""
        raise ZkError(f"no ZooKeeper server of {servers} answered within {timeout_ms:.0f} ms{reason}", "/") from error
    finally:
        client.stop()
        client.close()
