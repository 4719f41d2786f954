from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import Name, NameAttribute
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.errors import ConfigError
from odradek.security.tls.der import DerError
from odradek.security.tls.names import PrincipalRules, certificate_name, rfc2253_name
from odradek_testkit.security.certificates import Authority

KAFKA_EXAMPLE = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT"
)


def test_the_subject_of_a_certificate_begins_with_its_most_specific_part() -> None:
    subject = Name([NameAttribute(NameOID.ORGANIZATION_NAME, "A, B"), NameAttribute(NameOID.COMMON_NAME, "client")])
    der = Authority.root().issue(subject).certificate.public_bytes(Encoding.DER)
    assert certificate_name(der) == "CN=client,O=A\\, B"


@given(st.binary(max_size=60))
def test_other_bytes_are_no_name(data: bytes) -> None:
    for read in (rfc2253_name, certificate_name):
        try:
            read(data)
        except DerError:
            continue


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_matches_applies(name: str, expected: str) -> None:
    assert PrincipalRules.parse(KAFKA_EXAMPLE).apply(name) == expected


@pytest.mark.parametrize(
    ("rules", "name", "expected"),
    [
        ("DEFAULT", "CN=a", "CN=a"),
        ("", "CN=a", None),
        (" , ,, ", "CN=a", None),
        ("RULE:CN=b/x/", "CN=a", None),
        ("RULE:CN/x/", "CN=a", None),  # the whole name must match
        (",,RULE://,,DEFAULT,,", "CN=a", "CN=a"),
        ("  RULE:CN=(.*)/ $1 /U   ,DEFAULT  ", "CN=a", " A "),
        (r"RULE:CN=a\/(.*)/b\/$1/", "CN=a/c", "b/c"),
        (r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT", r"CN=Tkac\, Adam,OU=ITZ,DC=geodis,DC=cz", r"Tkac\, Adam"),
        ("RULE:CN=(.*),O=(.*)/$1@$4/", "CN=a,O=b", "a@$4"),
        ("RULE:CN=(.*),O=(.*)/$12-$42/", "CN=a,O=b", "a2-$42"),
        ("RULE:CN=(.*)|O=(.*)/$1$2/", "O=b", "b"),
        ("RULE:,RULE:,/,RULE:,/,RULE:,RULE:,/L,RULE:,/L,DEFAULT", ",RULE:,", ",RULE:,"),
    ],
)
def test_rules(rules: str, name: str, expected: str | None) -> None:
    assert PrincipalRules.parse(rules).apply(name) == expected


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT DEFAULT",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
        "RULE:CN=(.*)/$1/l",
        "RULE:a/b, RULE:c/d/",
    ],
)
def test_other_rules_are_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules is not valid from"):
        PrincipalRules.parse(rules)


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("RULE:(/x/", "the pattern is not valid"),
        ("RULE:[a/x/", "has no end"),
        (r"RULE:\p{Alpha}+/x/", r"the escape \p is not supported"),
        (r"RULE:[\p{Alpha}]+/x/", r"the escape \p is not supported"),
        (r"RULE:a\z/x/", r"the escape \z is not supported"),
        ("RULE:[a-z&&[^b]]/x/", "&& in a character class"),
        ("RULE:[a-z[0-9]]/x/", "character classes within"),
        ("RULE:[]a]/x/", "must be escaped"),
        ("RULE:(?P<n>a)/x/", "(?P is not valid in Java"),
        ("RULE:CN=.*/$1/", "refers to the group 1, but the pattern has no groups"),
        ("RULE:CN=(.*)/${n}/", "refers to the group n"),
        ("RULE:CN=(.*)/$/", "must be escaped"),
        (r"RULE:\u12/x/", r"the escape \u is not supported"),
    ],
)
def test_patterns_that_would_mean_something_else_are_refused(rule: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        PrincipalRules.parse(rule)
    assert reason in str(caught.value)
    assert rule in str(caught.value)


@given(st.text(alphabet="RULE:DFATN/\\$1,()[]^.*? \nLU", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    for rules in (text, f"RULE:{text}/$1/", f"RULE:(.*)/{text}/"):
        try:
            PrincipalRules.parse(rules).apply("CN=a")
        except ConfigError:
            continue
