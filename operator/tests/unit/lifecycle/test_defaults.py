"""Brokers' dynamic defaults: the resource is the whole truth, save for a throttle that is in force."""

from __future__ import annotations

import pytest

from odradek_operator.lifecycle import defaults
from odradek_operator.lifecycle.steps import SetBrokerDefaults
from odradek_operator.lifecycle.throttle import MARK, RATES
from odradek_operator.observed import ObservedConfig, Snapshot

RATE = RATES[0]


def seen(**present: str) -> Snapshot:
    values = {key.replace("_", "."): value for key, value in present.items()}
    return Snapshot(broker_configs={"<default>": ObservedConfig(values=values, version=4)})


@pytest.mark.parametrize(
    ("present", "wanted", "config", "reason"),
    [
        ({}, {}, None, ""),
        ({"log_retention_ms": "7"}, {"log.retention.ms": "7"}, None, ""),
        ({"log_retention_ms": "7"}, {"log.retention.ms": " 07"}, None, ""),
        ({}, {"log.retention.ms": "7"}, {"log.retention.ms": "7"}, "log.retention.ms becomes 7"),
        (
            {"log_retention_ms": "8"},
            {"log.retention.ms": "7"},
            {"log.retention.ms": "7"},
            "log.retention.ms becomes 7 (was 8)",
        ),
        ({"log_retention_ms": "nonsense"}, {"log.retention.ms": "7"}, {"log.retention.ms": "7"}, "was nonsense"),
        ({"a_plugin": "1"}, {}, {}, "a.plugin goes (was a value that is not shown)"),
        # People's own throttle stays, the resource's own is written.
        ({RATE: "5"}, {}, None, ""),
        ({RATE: "5"}, {RATE: "6"}, {RATE: "6"}, f"{RATE} becomes 6 (was 5)"),
        # While ours is in force, nobody changes it.
        ({RATE: "5", MARK: "resize"}, {}, None, ""),
        ({RATE: "5", MARK: "resize"}, {RATE: "6"}, None, ""),
        ({MARK: "resize"}, {RATE: "6"}, None, ""),
    ],
)
def test_what_is_written(
    present: dict[str, str], wanted: dict[str, str], config: dict[str, str] | None, reason: str
) -> None:
    step = defaults.decide(seen(**present), wanted)
    if config is None:
        assert step is None
        return
    assert isinstance(step, SetBrokerDefaults)
    assert (step.config, step.version) == (config, 4)
    assert reason in step.reason
    after = Snapshot(broker_configs={"<default>": ObservedConfig(values=step.config, version=5)})
    assert defaults.decide(after, wanted) is None


def test_the_first_ones() -> None:
    step = defaults.decide(Snapshot(), {"log.retention.ms": "7"})
    assert step is not None
    assert step.version is None


def test_a_znode_that_cannot_be_understood_is_left() -> None:
    assert defaults.decide(Snapshot(damaged=("A znode cannot be understood.",)), {"log.retention.ms": "7"}) is None


def test_secrets_are_not_told() -> None:
    step = defaults.decide(seen(ssl_keystore_password="geheim"), {})
    assert step is not None
    assert "geheim" not in step.reason
