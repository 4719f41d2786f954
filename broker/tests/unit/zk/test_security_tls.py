from __future__ import annotations

from odradek.zk.security_tls import explain


def test_errors_of_the_system_are_reported() -> None:
    assert explain(ConnectionRefusedError(111, "Connection refused")) == "Connection refused"
    assert explain(TimeoutError("timed out")) == "timed out"
    assert explain(ValueError("other")) == "other"
