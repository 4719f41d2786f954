"""The configuration file of a mirror: values, defaults, and errors that name the field."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from odradek.base.errors import ConfigError
from odradek.mirror.mirror_config import MirrorConfig, NameFilter

SMALLEST: dict[str, Any] = {
    "name": "dc-mirror",
    "target": {"bootstrapServers": "t:9092"},
    "sources": [{"name": "east", "bootstrapServers": "e:9092", "topics": {"include": ["orders.*"]}}],
}


def parse(document: object) -> MirrorConfig:
    return MirrorConfig.parse(yaml.safe_dump(document), "mirror.yaml", read_file=lambda path: {"client.id": path})


def changed(path: str, value: object) -> dict[str, Any]:
    """Return the smallest configuration with one value changed."""
    document = copy.deepcopy(SMALLEST)
    *parents, name = path.split(".")
    place: Any = document
    for parent in parents:
        place = place[0] if parent == "0" else place.setdefault(parent, {})
    place[name] = value
    return document


def test_defaults() -> None:
    config = parse(SMALLEST)
    source = config.sources[0]
    assert (config.group, config.refresh_seconds, config.groups_seconds) == ("odradek-mirror-dc-mirror", 30, 10)
    assert (config.replication_factor, config.internal_replication_factor) == (None, 3)
    assert (source.prefix, source.starting_offsets, source.on_data_loss) == ("east.", "earliest", "fail")
    assert (source.configurations, source.acls, source.partitions) == (True, False, True)
    assert source.groups == NameFilter() and source.max_bytes_per_second is None
    assert source.target_topic("orders") == "east.orders"


def test_an_empty_prefix_keeps_the_names() -> None:
    source = parse(changed("sources.0.prefix", "")).sources[0]
    assert source.target_topic("orders") == "orders"


def test_json_is_read_too() -> None:
    text = '{"name": "a", "target": {"bootstrapServers": "t:1"}, "sources": [{"name": "e", "bootstrapServers": "e:1",'
    config = MirrorConfig.parse(text + '"topics": {"include": [".*"]}}]}', "mirror.json")
    assert config.sources[0].name == "e"


@pytest.mark.parametrize(
    ("topic", "copied"),
    [
        ("orders", True),
        ("orders.eu", True),
        ("old.orders", False),
        ("orders.test", False),
        ("__consumer_offsets", False),
        ("heartbeats", False),
        ("west.heartbeats", False),
        ("west.checkpoints.internal", False),
        ("mm2-offset-syncs.west.internal", False),
        ("odradek-mirror-positions-west", False),
    ],
)
def test_which_topics_are_copied(topic: str, copied: bool) -> None:
    names = [".*"] if topic.startswith(("_", "heart", "west", "mm2", "odradek")) else ["orders.*"]
    source = parse(changed("sources.0.topics", {"include": names, "exclude": [".*test"]})).sources[0]
    assert source.copies(topic) is copied


def test_properties_override_the_file_and_keywords_override_both() -> None:
    document = changed("target.configFile", "target.properties")
    document["target"]["properties"] = {"request.timeout.ms": 5000, "check.crcs": False}
    settings = parse(document).target.settings(linger_ms=7)
    assert settings.client_id == "target.properties"
    assert (settings.request_timeout_ms, settings.check_crcs, settings.linger_ms) == (5000, False, 7)
    assert settings.bootstrap_servers == ("t:9092",)


def test_repr_shows_no_properties() -> None:
    document = changed("target.properties", {"sasl.jaas.config": 'x required username="u" password="secret";'})
    assert "secret" not in repr(parse(document))


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("name", None, "name is missing"),
        ("name", "DC", "name is 'DC'"),
        ("nmae", "x", "nmae is not a field"),
        ("target", None, "target is missing"),
        ("target.bootstrapServers", "", "target.bootstrapServers is missing"),
        ("target.bootstrapServers", "nothing", "target.bootstrapServers is not valid"),
        ("target.extra", 1, "target.extra is not a field"),
        ("target.properties", {"acks": "maybe"}, "target.properties is not valid"),
        ("target.properties", {"acks": ["all"]}, "target.properties.acks must be text"),
        ("sources", [], "sources must be a list"),
        ("sources.0.name", "a.b", "sources[0].name is 'a.b'"),
        ("sources.0.topics", {"include": []}, "sources[0].topics.include is empty"),
        ("sources.0.topics", {"include": ["("]}, "sources[0].topics.include[0] is '('"),
        ("sources.0.topics", {"includes": ["a"]}, "sources[0].topics.include"),
        ("sources.0.startingOffsets", "newest", "sources[0].startingOffsets is 'newest'"),
        ("sources.0.onDataLoss", "ignore", "sources[0].onDataLoss is 'ignore'"),
        ("sources.0.maxBytesPerSecond", 0, "sources[0].maxBytesPerSecond is 0"),
        ("sources.0.acls", "yes", "sources[0].acls is 'yes'"),
        ("refreshSeconds", -1, "refreshSeconds is -1"),
        ("replicationFactor", True, "replicationFactor is True"),
    ],
)
def test_errors_name_the_field(path: str, value: object, named: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(changed(path, value))
    assert str(raised.value).startswith("mirror.yaml: ") and named in str(raised.value)


def test_names_of_sources_are_unique() -> None:
    document = copy.deepcopy(SMALLEST)
    document["sources"].append(copy.deepcopy(document["sources"][0]))
    with pytest.raises(ConfigError, match=r"sources\[1\]\.name is 'east'"):
        parse(document)


@pytest.mark.parametrize("text", ["a: [", "- a", "7"])
def test_texts_that_are_no_configuration(text: str) -> None:
    with pytest.raises(ConfigError, match=r"mirror\.yaml"):
        MirrorConfig.parse(text, "mirror.yaml")
