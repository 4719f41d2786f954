"""Every event has a controller state, with Kafka's number."""

from __future__ import annotations

from odradek.controller import events
from odradek.controller.events import BrokersChanged, ControllerState, Event


def test_every_event_has_a_state() -> None:
    kinds = [each for each in vars(events).values() if isinstance(each, type) and issubclass(each, Event)]
    states = {kind: kind.controller_state for kind in kinds if kind is not Event}
    assert len(states) == 15
    assert states[BrokersChanged] is ControllerState.BROKER_CHANGE
    assert all(state is not ControllerState.IDLE for state in states.values())
