"""DIGEST-MD5: any challenge gives a response or a `DigestError`; any user name survives quoting."""

from __future__ import annotations

import re
from hashlib import md5

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.config import BrokerConfig
from odradek.zk.security import zookeeper_settings
from odradek.zk.security_digest import SERVICE, DigestError, DigestLogin

NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cc",)), min_size=1, max_size=20)


@given(st.binary(max_size=300) | st.text('=,"\\ anonceqprlm', max_size=60).map(str.encode))
def test_any_challenge_is_answered_or_refused(challenge: bytes) -> None:
    login = DigestLogin("user", "password", "nonce")
    try:
        login.respond(challenge)
        login.verify(challenge)
    except DigestError:
        return
    raise AssertionError("no message is a challenge and its own proof")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _as_hashed(text: str) -> bytes:
    return text.encode("latin-1" if all(ord(each) < 256 for each in text) else "utf-8")


def _digest(*parts: bytes) -> bytes:
    return md5(b":".join(parts)).hexdigest().encode()


@given(NAMES, st.text(st.characters(codec="utf-8"), max_size=20), NAMES, st.from_regex(r"\A[!#-\[\]-~]{1,20}\Z"))
def test_a_server_with_the_password_accepts_the_response(user: str, password: str, realm: str, nonce: str) -> None:
    login = DigestLogin(user, password, "mine")
    response = login.respond(f'realm="{_escaped(realm)}",nonce="{nonce}",charset=utf-8,algorithm=md5-sess'.encode())
    text = response.decode()
    assert f'username="{_escaped(user)}",realm="{_escaped(realm)}",nonce="{nonce}"' in text
    session = md5(b":".join(map(_as_hashed, (user, realm, password)))).digest()
    secret = _digest(session, nonce.encode(), b"mine")
    tail = (nonce.encode(), b"00000001", b"mine", b"auth")
    found = re.search(r",response=([0-9a-f]{32}),", text)
    assert found is not None
    assert found[1].encode() == _digest(secret, *tail, _digest(b"AUTHENTICATE", SERVICE.encode()))
    login.verify(b"rspauth=" + _digest(secret, *tail, _digest(b"", SERVICE.encode())))


@given(NAMES, st.text(st.characters(codec="utf-8", exclude_categories=("Cc",)), max_size=20))
def test_a_quoted_jaas_entry_gives_back_what_was_quoted(user: str, password: str) -> None:
    entry = (
        "org.apache.zookeeper.server.auth.DigestLoginModule required\n"
        f'  username="{_escaped(user)}"\n  password="{_escaped(password)}";\n'
    )
    config, _ = BrokerConfig.parse(
        {"broker.id": "1", "zookeeper.connect": "zk:2181", "zookeeper.sasl.jaas.config": entry}
    )
    assert zookeeper_settings(config).sasl == (user, password)
