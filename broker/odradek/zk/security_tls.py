"""TLS to ZooKeeper: explanations of failures.

`zk/session` creates an `SSLContext` for each connection with `security/tls/contexts`, so that renewed certificates are
used without a restart.
"""

from __future__ import annotations

import ssl
from typing import Final

PREFIX: Final = "zookeeper.ssl."


def explain(error: BaseException) -> str:
    """Return why a connection failed, as the end of a message."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate was rejected ({error.verify_message.rstrip('.')}): see {PREFIX}truststore.location "
            f"and, for the host name, {PREFIX}endpoint.identification.algorithm"
        )
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        if "alert" in reason and ("certificate" in reason or "unknown ca" in reason):
            return f"it rejects the client certificate or requires one ({reason}): see {PREFIX}keystore.location"
        if "protocol version" in reason:
            return f"it does not support the enabled TLS versions ({reason}): see {PREFIX}enabled.protocols"
        return f"the TLS handshake failed ({reason}): check that this is its port for TLS"
    return _system_reason(error) if isinstance(error, OSError) else str(error)


def _system_reason(error: OSError) -> str:
    reason = getattr(error, "reason", None)
    return str(reason).replace("_", " ").lower() if reason else error.strerror or str(error)
