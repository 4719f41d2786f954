"""Ends the ZooKeeper session of a dead broker process, so that its ephemeral znodes disappear at once.

The parent of the broker process calls it with the id and password of the session, after the process has ended.
Invariant: if the session has already ended, nothing changes. If ZooKeeper then opens a new session, it is closed.
"""

from __future__ import annotations

from typing import Final

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from odradek.zk.port import ZkError, ZkSettings
from odradek.zk.session import Handler, Kazoo

_PER_SERVER_MS: Final = 2_000.0


def end_session(settings: ZkSettings, credentials: tuple[int, bytes], *, timeout_ms: float) -> None:
    """Connect with the session of the dead process and close it. Blocks for at most about `timeout_ms`.

    `settings` are those of the dead broker. Raises `ZkError` if no server accepts the session in time. The session then
    expires after its timeout.
    """
    client = Kazoo(
        settings,
        Handler(settings.tls, _PER_SERVER_MS / 1000),
        client_id=credentials,
        timeout=max(_PER_SERVER_MS, timeout_ms) / 1000,
    )
    try:
        client.start(timeout=timeout_ms / 1000)
    except (KazooException, KazooTimeoutError) as error:
        servers = settings.split()[0]
        reason = f" ({client.failure})" if client.failure else ""
        raise ZkError(f"no ZooKeeper server of {servers} answered within {timeout_ms:.0f} ms{reason}", "/") from error
    finally:
        client.stop()
        client.close()
