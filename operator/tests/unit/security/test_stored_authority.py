"""An authority in its Secret: every step of a replacement survives a restart of the operator."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from odradek_operator.security.authorities import AuthorityError
from odradek_operator.security.rotation import Rotation, RotationStep
from odradek_operator.security.stored_authority import StoredAuthority, fingerprint, is_being_replaced

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WHERE = "Secret shop/demo-cluster-ca"


def new() -> StoredAuthority:
    return StoredAuthority.new("demo cluster CA", validity_days=30, request="", now=NOW)


def stepped(authority: StoredAuthority, step: RotationStep, hours: int = 1) -> StoredAuthority:
    at = NOW + timedelta(hours=hours)
    return authority.stepped(Rotation(step), "demo cluster CA 2", validity_days=30, request="1", now=at)


def test_each_step_is_stored() -> None:
    first = new()
    assert StoredAuthority.read(first.files, WHERE).files == first.files
    begun = stepped(first, RotationStep.BEGIN)
    issued = stepped(begun, RotationStep.ISSUE, 2)
    ended = stepped(issued, RotationStep.END, 3)
    for each, is_replacing in ((first, False), (begun, True), (issued, True), (ended, False)):
        again = StoredAuthority.read(each.files, WHERE)
        assert again.files == each.files
        assert (again.trust, again.changed, again.replaced) == (each.trust, each.changed, each.replaced)
        assert is_being_replaced(each.files) == again.is_being_replaced == is_replacing
    assert begun.trusted == issued.trusted, "the newest first, whichever signs"
    assert begun.trust.signing == fingerprint(first.signing.certificate) != issued.trust.signing
    assert ended.trusted == (issued.signing.certificate,)
    assert ended.replaced == "1"
    names = [each.subject.rfc4514_string() for each in begun.trusted]
    assert names == ["CN=demo cluster CA 2", "CN=demo cluster CA"]


def test_a_renewal_keeps_the_key() -> None:
    first = new()
    renewed = stepped(first, RotationStep.RENEW)
    assert renewed.signing.key_pem == first.signing.key_pem
    assert renewed.signing.certificate != first.signing.certificate
    assert renewed.replaced == "", "it is not a replacement"
    assert stepped(first, RotationStep.KEEP) == first


def test_the_secret_of_an_earlier_version_has_two_keys() -> None:
    files = new().files
    found = StoredAuthority.read({key: files[key] for key in ("ca.crt", "ca.key")}, WHERE)
    assert found.replaced == ""
    assert found.changed < NOW


@pytest.mark.parametrize("key", ["ca.crt", "ca.key", "next.crt", "next.key", "changed"])
def test_a_damaged_secret_is_an_error_that_names_it_and_never_a_key(key: str) -> None:
    begun = stepped(new(), RotationStep.BEGIN)
    with pytest.raises(AuthorityError, match=WHERE) as raised:
        StoredAuthority.read({**begun.files, key: b"nothing"}, WHERE)
    assert "PRIVATE" not in str(raised.value)
    if key != "changed":
        with pytest.raises(AuthorityError, match=f"{WHERE} has no {key}"):
            StoredAuthority.read({name: text for name, text in begun.files.items() if name != key}, WHERE)


def test_a_damaged_former_authority_is_an_error() -> None:
    issued = stepped(stepped(new(), RotationStep.BEGIN), RotationStep.ISSUE)
    with pytest.raises(AuthorityError, match=r"former\.crt"):
        StoredAuthority.read({**issued.files, "former.crt": b"nothing"}, WHERE)
