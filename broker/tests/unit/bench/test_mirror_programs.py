"""The options of the mirrors that the benchmark compares."""

from __future__ import annotations

import json

from comparison.workloads.mirror_programs import Route, mirrormaker_options, odradek_options

from odradek.mirror.mirror_config import MirrorConfig

ROUTE = Route(alias="run-1", source="127.0.0.1:9001", target="127.0.0.1:9002", topic="full")


def test_our_mirror_copies_to_the_topic_that_is_measured() -> None:
    config = MirrorConfig.parse(json.dumps(odradek_options(ROUTE)), "options")
    source = config.source("run-1")
    assert source.copies("full") and not source.copies("other")
    assert source.target_topic("full") == ROUTE.copy == "run-1.full"
    assert (source.address.bootstrap_servers, config.target.bootstrap_servers) == (ROUTE.source, ROUTE.target)


def test_mirrormaker_copies_the_same_topic_in_one_direction() -> None:
    options = mirrormaker_options(ROUTE, exactly_once=False)
    assert options["run-1->target.enabled"] == "true" and options["target->run-1.enabled"] == "false"
    assert options["run-1->target.topics"] == "full"
    assert options["run-1.bootstrap.servers"] == ROUTE.source
    assert options["target.bootstrap.servers"] == ROUTE.target
    assert not [name for name in options if "exactly" in name]


def test_mirrormaker_has_large_transactions_if_it_copies_exactly_once() -> None:
    options = mirrormaker_options(ROUTE, exactly_once=True)
    assert options["target.exactly.once.source.support"] == "enabled"
    assert options["dedicated.mode.enable.internal.rest"] == "true"
    assert options["transaction.boundary"] == "interval"
