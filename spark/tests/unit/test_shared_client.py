"""Shared clients: one per settings, disconnected when idle or too many."""

from __future__ import annotations

from dataclasses import dataclass, field

from odradek.base.types import TopicPartition
from odradek.client.blocking.client import BlockingClient
from odradek.client.settings import ClientSettings
from pyspark_odradek.shared_client import IDLE_SECONDS, MOST_CLIENTS, RACK_VARIABLE, ClientCache, with_rack


class FakeClient:
    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self.connected = True

    def disconnect(self) -> None:
        self.connected = False


@dataclass
class Fixture:
    seconds: float = 0.0
    made: list[FakeClient] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cache = ClientCache(self.create, lambda: self.seconds)  # type: ignore[arg-type]

    def create(self, settings: ClientSettings) -> FakeClient:
        self.made.append(FakeClient(settings))
        return self.made[-1]

    def get(self, port: int) -> FakeClient:
        return self.cache.get(ClientSettings.of(f"h:{port}"))  # type: ignore[return-value]


def test_equal_settings_share_a_client() -> None:
    fixture = Fixture()
    assert fixture.get(1) is fixture.get(1)
    assert fixture.get(2) is not fixture.get(1)


def test_the_client_that_was_not_requested_for_the_longest_time_is_disconnected() -> None:
    fixture = Fixture()
    for port in range(1, MOST_CLIENTS + 1):
        fixture.get(port)
    fixture.get(1)
    fixture.get(99)
    assert [client.connected for client in fixture.made] == [True, False] + [True] * (MOST_CLIENTS - 1)


def test_idle_clients_are_disconnected_and_made_anew() -> None:
    fixture = Fixture()
    first, second = fixture.get(1), fixture.get(2)
    fixture.seconds = IDLE_SECONDS - 1
    assert fixture.get(2) is second
    fixture.seconds += 1
    fixture.get(2)
    assert (first.connected, second.connected) == (False, True)
    assert fixture.get(1) is not first


def test_the_rack_of_the_process_counts_unless_an_option_says_otherwise() -> None:
    settings = ClientSettings.of("h:1")
    assert with_rack(settings, {}) == settings
    # A pod without the label of a zone has an empty variable.
    assert with_rack(settings, {RACK_VARIABLE: ""}) == settings
    assert with_rack(settings, {RACK_VARIABLE: "zone-b"}).client_rack == "zone-b"
    given = settings.replace(client_rack="zone-a")
    assert with_rack(given, {RACK_VARIABLE: "zone-b"}) == given


def test_a_client_that_never_connected_has_nothing_to_free() -> None:
    # Nobody listens on this port, so an attempt to connect would fail.
    with BlockingClient("127.0.0.1:1") as client:
        client.drop_read_ahead(TopicPartition("a", 0))
        client.disconnect()
