"""Ends another process's ZooKeeper session, so that what it had there is gone at once and not after the time-out.

Called by the parent of a broker process that is certainly dead, with the id and password of its session (DESIGN:
speaking for a dead broker). Invariant: a session that is over already stays over, and nothing else is touched: a new
session that ZooKeeper may open instead is closed again.
"""

from __future__ import annotations

from typing import Final

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from odradek.zk.port import ZkError, ZkSettings
from odradek.zk.session import Handler, Kazoo

_PER_SERVER_MS: Final = 2_000.0


def end_session(settings: ZkSettings, credentials: tuple[int, bytes], *, timeout_ms: float) -> None:
    """Take the session over and close it. Blocks for at most about `timeout_ms`.

    `settings` are those of the dead broker. Raises `ZkError` when no server answers in time, or none accepts us; the
    session then ends by its own time-out.
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
