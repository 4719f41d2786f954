"""The codes in the results of the admin client: plain numbers and names still work, and new ones become UNKNOWN."""

from __future__ import annotations

import json
from typing import Any

import pytest

from odradek.base.setting_definitions import SettingType
from odradek.client.admin_kinds import (
    ConfigResourceType,
    ConfigSource,
    ConfigType,
    ConsumerGroupState,
    TransactionalIdState,
)
from odradek.client.administration.admin_parts import config_entry
from odradek.client.models import ConfigResource
from odradek.protocol.messages.configs import DescribeConfigsResponseResourceResult


def test_members_equal_the_values_of_the_protocol() -> None:
    resource: Any = (2, "t")
    assert ConfigResource.topic("t") == resource
    assert {resource: 1}[ConfigResource.topic("t")] == 1
    assert ConfigSource.STATIC_BROKER_CONFIG == 4
    state: Any = ConsumerGroupState.STABLE
    assert state == "Stable"
    assert (str(state), f"{state}", json.dumps(state)) == ("Stable", "Stable", '"Stable"')


def test_the_types_of_properties_are_those_of_the_brokers() -> None:
    expected = {each.name: each.value for each in SettingType}
    assert {each.name: each.value for each in ConfigType if each is not ConfigType.UNKNOWN} == expected


@pytest.mark.parametrize(
    "kind", [ConfigResourceType, ConfigSource, ConfigType, ConsumerGroupState, TransactionalIdState]
)
def test_an_unknown_value_becomes_unknown(kind: Any) -> None:
    assert kind("new") is kind.UNKNOWN
    assert kind(99) is kind.UNKNOWN


@pytest.mark.parametrize(
    ("is_default", "resource", "source"),
    [
        (True, ConfigResourceType.TOPIC, ConfigSource.DEFAULT_CONFIG),
        (False, ConfigResourceType.TOPIC, ConfigSource.TOPIC_CONFIG),
        (False, ConfigResourceType.BROKER, ConfigSource.UNKNOWN),
    ],
)
def test_a_broker_of_kafka_0_11_says_only_whether_a_value_is_a_default(
    is_default: bool, resource: ConfigResourceType, source: ConfigSource
) -> None:
    result = DescribeConfigsResponseResourceResult(
        name="retention.ms", value="1", read_only=False, is_default=is_default, is_sensitive=False
    )
    assert config_entry(result, resource).source is source
