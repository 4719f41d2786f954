"""The controller's state by the event: every event has one, and Kafka's number of it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from odradek.controller import events
from odradek.controller.broker_requests.request_batch import BrokerRequest
from odradek.controller.events import Answered, Asked, Event, TopicChanged, TopicSettingsChanged
from odradek.controller.states import ControllerState, state_of


async def test_every_event_has_a_state() -> None:
    odd: dict[type[Event], Event] = {
        TopicChanged: TopicChanged("t"),
        TopicSettingsChanged: TopicSettingsChanged(None),
        Answered: Answered(cast(BrokerRequest, None), None),
        Asked: Asked(cast(Any, None), asyncio.get_running_loop().create_future(), ControllerState.ISR_CHANGE),
    }
    kinds = [each for each in vars(events).values() if isinstance(each, type) and issubclass(each, Event)]
    found = {kind.__name__: state_of(odd[kind] if kind in odd else kind()) for kind in kinds if kind is not Event}
    assert len(found) == 15
    assert found["BrokersChanged"] is ControllerState.BROKER_CHANGE
    assert all(state is not ControllerState.IDLE for state in found.values())
