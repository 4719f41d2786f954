"""Listeners that change without a restart, and those that need one."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_operator.lifecycle.dynamic_listeners import (
    KEYS,
    MARK,
    BrokerListeners,
    added,
    addresses,
    decide,
    needs_restart,
    removed,
)
from odradek_operator.topics.zookeeper_state import ObservedConfig, Snapshot

PLAIN = "PLAINTEXT://127.0.0.1:9092"
OUT = "OUT://127.0.0.1:9192"
MOVED = "OUT://127.0.0.1:9292"


def of(*listeners: str) -> dict[str, str]:
    names = [entry.partition("://")[0] for entry in listeners]
    joined = ",".join(listeners)
    return dict(zip(KEYS, (joined, joined, ",".join(f"{name}:PLAINTEXT" for name in names)), strict=True))


def marked(*listeners: str) -> dict[str, str]:
    return {**of(*listeners), MARK: "true"}


def broker(started: Mapping[str, str], wanted: Mapping[str, str]) -> BrokerListeners:
    return BrokerListeners(broker=1, started=started, wanted=wanted)


def seen(values: Mapping[str, str] | None) -> Snapshot:
    return Snapshot(broker_configs={} if values is None else {"1": ObservedConfig(values=values, version=7)})


@pytest.mark.parametrize(
    ("started", "wanted", "values", "restart"),
    [
        (of(PLAIN), of(PLAIN), None, False),
        (of(PLAIN), of(PLAIN, OUT), None, False),
        (of(PLAIN, OUT), of(PLAIN), None, False),
        (of(PLAIN, OUT), of(PLAIN, MOVED), None, True),
        (of(PLAIN), of(PLAIN, MOVED), marked(PLAIN, OUT), True),
        (of(PLAIN), of(PLAIN), marked(PLAIN, OUT), False),
        (of(PLAIN), of(OUT, PLAIN), None, True),
        # The settings in ZooKeeper still override the port with which the process was started.
        (of(PLAIN, MOVED), of(PLAIN, MOVED), marked(PLAIN, OUT), True),
        # Listeners that another tool set.
        (of(PLAIN), of(PLAIN), of(PLAIN, OUT), False),
    ],
)
def test_which_changes_take_a_restart(
    started: Mapping[str, str], wanted: Mapping[str, str], values: Mapping[str, str] | None, restart: bool
) -> None:
    one = broker(started, wanted)
    assert needs_restart(one, seen(values)) is restart
    if restart:
        assert decide([one], seen(values)) == ()


def test_a_listener_is_added_beside_the_settings_of_others() -> None:
    one = broker(of(PLAIN), of(PLAIN, OUT))
    (step,) = decide([one], seen({"log.retention.ms": "5"}))
    assert step.config == {"log.retention.ms": "5", **marked(PLAIN, OUT)}
    assert (step.broker, step.version) == (1, 7)
    assert step.reason == "listener OUT opens on 127.0.0.1:9192"
    assert added(one, seen(None)) == {"OUT": "127.0.0.1:9192"}
    assert added(one, seen(step.config)) == {}
    (first,) = decide([one], seen(None))
    assert first.version is None


def test_a_listener_is_removed_again() -> None:
    one = broker(of(PLAIN), of(PLAIN))
    (step,) = decide([one], seen({"log.retention.ms": "5", **marked(PLAIN, OUT)}))
    assert step.config == {"log.retention.ms": "5"}
    assert step.reason == "listener OUT closes"
    (of_the_file,) = decide([broker(of(PLAIN, OUT), of(PLAIN))], seen(None))
    assert of_the_file.config == marked(PLAIN)


def test_settings_of_others_stay_until_the_resource_changes_the_listeners() -> None:
    theirs = seen(of(PLAIN, "THEIRS://127.0.0.1:1"))
    assert decide([broker(of(PLAIN), of(PLAIN))], theirs) == ()
    assert removed(1, theirs) is None
    (step,) = decide([broker(of(PLAIN), of(PLAIN, OUT))], theirs)
    assert step.config == marked(PLAIN, OUT)


def test_a_broker_starts_without_marked_settings() -> None:
    step = removed(1, seen({"a": "b", **marked(PLAIN, OUT)}))
    assert step is not None
    assert step.config == {"a": "b"}
    assert removed(1, seen(None)) is None


listeners = st.dictionaries(st.sampled_from(["A", "B", "C"]), st.integers(1, 3), max_size=3).map(
    lambda ports: of(PLAIN, *(f"{name}://127.0.0.1:{port}" for name, port in ports.items()))
)


@given(listeners, listeners, st.none() | listeners)
def test_one_step_is_enough(started: Mapping[str, str], wanted: Mapping[str, str], set_before: object) -> None:
    """After the step, the broker has the wanted listeners and nothing is left to do."""
    values = None if set_before is None else {**set_before, MARK: "true"}  # type: ignore[dict-item]
    one = broker(started, wanted)
    if needs_restart(one, seen(values)):
        # The restart removes the marked settings, and the properties file then has the wanted listeners.
        one, values = broker(wanted, wanted), None
    for step in decide([one], seen(values)):
        values = dict(step.config)
    assert decide([one], seen(values)) == ()
    assert not needs_restart(one, seen(values))
    assert addresses({**one.started, **(values or {})}) == addresses(wanted)
