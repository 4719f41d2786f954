"""The specification of a Topic, field by field. Pure.

Enters: the `spec` section of a document. Leaves: a `Topic`; what is wrong is noted in the section, and nothing of the
value may be used then. Called by `reader`. What a topic's cluster allows is checked where the cluster is known.
"""

from __future__ import annotations

from odradek.base.config import TOPIC_SETTINGS
from odradek.base.errors import ConfigError
from odradek_operator.crds.fields import OBJECT_NAME, Section, nearest
from odradek_operator.crds.types import MAX_BROKERS, MAX_PARTITIONS, Deletion, Drift, Topic


def read_topic(name: str, spec: Section) -> Topic:
    """The specification, with the defaults of what it leaves out; the metadata is the caller's."""
    topic = Topic(
        name=name,
        cluster=spec.text("cluster", rule=OBJECT_NAME),
        partitions=spec.integer("partitions", 1, low=1, high=MAX_PARTITIONS),
        replicas=spec.integer("replicas", low=1, high=MAX_BROKERS) if spec.has("replicas") else None,
        config=_topic_config(spec),
        deletion=Deletion(spec.choice("deletion", [choice.value for choice in Deletion], Deletion.PROTECT.value)),
        drift=Drift(spec.choice("drift", [choice.value for choice in Drift], Drift.REVERT.value)),
    )
    spec.close()
    return topic


def _topic_config(spec: Section) -> dict[str, str]:
    config = spec.properties("config")
    for key, value in config.items():
        setting = TOPIC_SETTINGS.get(key)
        if setting is None:
            spec.complain_of_property("config", key, f"is not a setting of a topic{nearest(key, TOPIC_SETTINGS)}.")
            continue
        try:
            setting.parse(value)
        except ConfigError as error:
            spec.complain_of_property("config", key, f"{error}.")
    return config
