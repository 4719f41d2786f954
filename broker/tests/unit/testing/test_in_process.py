"""The in-process broker, which is also a pytest fixture for users, serves clients without Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek import BlockingClient, ClientSettings, ConfigError, NewTopic
from odradek.testing.in_process import InProcessBroker


def test_records_that_were_sent_are_read(odradek_broker: InProcessBroker) -> None:
    settings = ClientSettings.of(odradek_broker.bootstrap, auto_offset_reset="earliest")
    with BlockingClient(settings) as client:
        client.admin.create_topics([NewTopic(name="in-process", partitions=2)])
        with client.producer() as producer:
            sent = [producer.send("in-process", value=str(number).encode()) for number in range(100)]
            producer.flush()
        assert {future.result().topic for future in sent} == {"in-process"}
        with client.consumer("in-process", group_id="readers") as consumer:
            read = [next(iter(consumer)).value for _ in range(100)]
    assert sorted(map(int, filter(None, read))) == list(range(100))


def test_topics_survive_a_restart_of_the_broker(tmp_path: Path) -> None:
    broker = InProcessBroker(tmp_path)
    for topics in ([], ["kept"]):
        broker.start()
        try:
            with BlockingClient(broker.bootstrap) as client:
                assert client.topics() == topics
                if not topics:
                    client.admin.create_topics([NewTopic(name="kept", partitions=1)])
        finally:
            broker.close()
            broker.close()


def test_invalid_properties_are_refused(tmp_path: Path) -> None:
    broker = InProcessBroker(tmp_path, {"num.partitions": "many"})
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        broker.start()
