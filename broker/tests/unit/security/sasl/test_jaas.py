"""The parser of `sasl.jaas.config`. `tests/interop` compares it with Kafka's."""

from __future__ import annotations

import pytest

from odradek.base.errors import ConfigError
from odradek.security.sasl.jaas import parse_jaas

SETTING = "sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECRET = "geheim"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f"{MODULE} required;", {}),
        (f"  {MODULE}\n\trequired\n;\n", {}),
        (f"{MODULE} REQUIRED a=b;", {"a": "b"}),
        (f"{MODULE} optional a = 'b c' d=\"e;=f\";", {"a": "b c", "d": "e;=f"}),
        (f"{MODULE} sufficient a=\"it's\" b='\"';", {"a": "it's", "b": '"'}),
        (f'{MODULE} requisite a="q\\"\\\\\\t\\n\\x" ;', {"a": 'q"\\\t\nx'}),
        (f'{MODULE} required a="\\101\\7\\4012";', {"a": "A\x07\x20" + "12"}),
        (f"{MODULE} required // a=b\n c=d; /* e=f;\n */ // the end", {"c": "d"}),
        (f'{MODULE} required user_a.b-c$="x" user_a.b-c$="y";', {"user_a.b-c$": "y"}),
        (f"{MODULE} required a=12 b=/etc/x-1.pem;", {"a": "12", "b": "/etc/x-1.pem"}),
        (f'{MODULE} required a="" user_ä="ü\u2028";', {"a": "", "user_ä": "ü\u2028"}),
    ],
)
def test_options(text: str, options: dict[str, str]) -> None:
    entry = parse_jaas(SETTING, text)
    assert entry.login_module == MODULE
    assert entry.options == options


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        (" // nothing", "is empty"),
        ("; required;", "at character 1: the name of a login module"),
        (f"{MODULE}", "a control flag is expected"),
        (f"{MODULE};", "a control flag is expected"),
        (f"{MODULE} always;", "a control flag is expected"),
        (f"{MODULE} required", "must end with `;`"),
        (f'{MODULE} required a="{SECRET}"', "must end with `;`"),
        (f"{MODULE} required {SECRET};", "name=value"),
        (f"{MODULE} required ={SECRET};", "name=value"),
        (f"{MODULE} required a=;", "a value is expected"),
        (f"{MODULE} required a", "name=value"),
        (f'{MODULE} required a="{SECRET};', "close each quote"),
        (f'{MODULE} required a="{SECRET}\n";', "close each quote"),
        (f"{MODULE} required a=b/*{SECRET};", "close each quote and comment"),
        (f"{MODULE} required a={SECRET}==;", "name=value"),
        (f"KafkaServer {{ {MODULE} required a={SECRET}; }};", "at character 13"),
        (f"{MODULE} required; {MODULE} required;", "more than one"),
    ],
)
def test_errors_show_the_position_and_no_value(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_jaas(SETTING, text)
    message = str(caught.value)
    assert message.startswith(SETTING)
    assert reason in message
    assert SECRET not in message


def test_the_login_module_is_checked() -> None:
    entry = parse_jaas(SETTING, f'{MODULE} required user_a="{SECRET}";')
    entry.require(SETTING, "other", MODULE)
    with pytest.raises(ConfigError, match=r"it must be one or two"):
        entry.require(SETTING, "one", "two")


def test_no_secret_is_shown() -> None:
    entry = parse_jaas(SETTING, f'{MODULE} required user_a="{SECRET}";')
    assert SECRET not in f"{entry!r} {entry}"
