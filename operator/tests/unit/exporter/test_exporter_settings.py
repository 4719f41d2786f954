"""Settings of the exporter: bounds, filters, and options of the command line."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from odradek.base.errors import ConfigError
from odradek.zk.port import ZkSettings
from odradek_operator.exporter.exporter_command import exporter, parsed
from odradek_operator.exporter.exporter_settings import ExporterSettings, NameFilter


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"interval": 0.0}, "interval=0.0 is not allowed: it must be from 0.1 to 3600.0"),
        ({"interval": float("nan")}, "interval=nan"),
        ({"sizes_interval": -1.0}, "sizes-interval"),
        ({"request_timeout": 0.0}, "request-timeout"),
        ({"lag_cap": 0.5}, "lag-cap"),
        ({"brokers_at_once": 0}, "brokers-at-once"),
        ({"groups_per_topic": -1}, "groups-per-topic"),
        ({"max_groups": 0}, "max-groups"),
        ({"interval": 30.0, "stale_after": 30.0}, "stale-after=30.0 is not allowed: it must be greater than interval"),
    ],
)
def test_what_makes_no_sense_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ExporterSettings(**values)


@pytest.mark.parametrize(
    ("include", "exclude", "taken"),
    [
        (".*", "^$", ["__consumer_offsets", "orders", "orders-old"]),
        (".*", "__.*", ["orders", "orders-old"]),
        ("orders", "^$", ["orders"]),
        ("orders.*", ".*-old", ["orders"]),
    ],
)
def test_filters_are_about_whole_names(include: str, exclude: str, taken: list[str]) -> None:
    chosen = NameFilter.of(include, exclude)
    assert [name for name in ("__consumer_offsets", "orders", "orders-old") if chosen.takes(name)] == taken


def options(*words: str) -> dict[str, object]:
    """Return the options as click passes them."""
    context = exporter.make_context("exporter", list(words))
    assert isinstance(context, click.Context)
    return {name: value for name, value in context.params.items() if name != "log_level"}


def test_the_command_line_becomes_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOTSTRAP_SERVERS", "a:1,b:2")
    monkeypatch.setenv("ZOOKEEPER_CONNECT", "z:2181/root")
    words = "--interval 5 --groups-exclude console-.* --request-timeout 2.5 -X retry.backoff.ms=7".split()
    place, settings = parsed(options(*words))
    assert settings == ExporterSettings(interval=5, request_timeout=2.5, groups=NameFilter.of(".*", "console-.*"))
    assert place.zookeeper == ZkSettings(connect="z:2181/root")
    assert (place.host, place.port) == ("0.0.0.0", 9404)
    assert place.client.bootstrap_servers == ("a:1", "b:2")
    assert (place.client.request_timeout_ms, place.client.default_api_timeout_ms) == (2500, 5000)
    assert place.client.retry_backoff_ms == 7


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "Missing option '--bootstrap'"),
        (["--bootstrap", "a"], 1, "it must be a list of host:port"),
        (["--bootstrap", "a:1", "--interval", "0"], 1, "interval=0.0 is not allowed"),
        (["--bootstrap", "a:1", "--topics", "("], 1, "is not a regular expression"),
        (["--bootstrap", "a:1", "--port", "70000"], 2, "70000 is not in the range"),
    ],
)
def test_wrong_usage_is_one_sentence(words: list[str], code: int, message: str) -> None:
    result = CliRunner().invoke(exporter, words, env={"BOOTSTRAP_SERVERS": None, "ZOOKEEPER_CONNECT": None})
    assert (result.exit_code, message in result.output) == (code, True), result.output
