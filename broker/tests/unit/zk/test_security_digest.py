from __future__ import annotations

import pytest

from odradek.zk.security_digest import MAX_CHALLENGE_BYTES, DigestError, DigestLogin

# The example of RFC 2831, section 4.
CHALLENGE = b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'
PROOF = b"rspauth=ea40f60335c427b5527b84dbabcdfffd"


def login(user: str = "chris", password: str = "secret") -> DigestLogin:
    return DigestLogin(user, password, "OA6MHXh6VqTrRk", service="imap/elwood.innosoft.com")


def test_the_example_of_the_standard() -> None:
    chris = login()
    assert chris.respond(CHALLENGE).split(b",") == [
        b"charset=utf-8",
        b'username="chris"',
        b'realm="elwood.innosoft.com"',
        b'nonce="OA6MG9tEQGm2hh"',
        b"nc=00000001",
        b'cnonce="OA6MHXh6VqTrRk"',
        b'digest-uri="imap/elwood.innosoft.com"',
        b"maxbuf=65536",
        b"response=d388dad90d4bbd760a152321f2143af7",
        b"qop=auth",
    ]
    chris.verify(PROOF)


@pytest.mark.parametrize("proof", [b"", b"rspauth=ea40f60335c427b5527b84dbabcdfffe", b'rspauth=""', b"=,", b"x"])
def test_a_server_that_does_not_know_the_password_is_refused(proof: bytes) -> None:
    chris = login()
    chris.respond(CHALLENGE)
    with pytest.raises(DigestError):
        chris.verify(proof)


def test_a_proof_before_the_challenge_is_rejected() -> None:
    with pytest.raises(DigestError):
        login().verify(b'rspauth=""')


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"realm",
        b"\xff\x00",
        b'nonce="n"',
        b"algorithm=md5-sess",
        b'nonce="n",algorithm=md5',
        b'nonce="n",algorithm=md5-sess,qop="auth-int,auth-conf"',
        b'nonce="n,algorithm=md5-sess',
        b'nonce="n",algorithm=md5-sess,' + b"x=y," * (MAX_CHALLENGE_BYTES // 4),
    ],
)
def test_other_challenges_are_refused(challenge: bytes) -> None:
    with pytest.raises(DigestError):
        login().respond(challenge)


def test_the_first_of_several_realms_is_chosen_and_none_is_left_out() -> None:
    several = login().respond(b'realm="a",realm="b",nonce="n",algorithm=md5-sess')
    assert b'realm="a"' in several
    assert b"charset" not in several
    assert b"realm" not in login().respond(b'nonce="n",algorithm=md5-sess,qop="auth-int, auth"')


def test_quotes_are_escaped() -> None:
    assert b'username="a\\"b\\\\c"' in login('a"b\\c').respond(CHALLENGE)


def test_names_that_the_server_cannot_take_are_refused_without_showing_the_password() -> None:
    plain = b'nonce="n",algorithm=md5-sess'
    for chosen in (login(user="ł"), login(password="łsecret")):
        with pytest.raises(DigestError) as caught:
            chosen.respond(plain)
        assert "secret" not in str(caught.value)
    assert login(user="ł", password="ł").respond(CHALLENGE)
