"""OpenAPI of the statuses of Cluster and Topic. Pure; `odradek_operator.topics.topic_status` makes the values."""

from __future__ import annotations

from odradek_operator.crds.openapi import Schema, listed, record, text, truth, whole


def cluster_status_schema() -> Schema:
    """The field `status` of a Cluster."""
    return record(
        "What the operator has seen last; written by the operator alone.",
        {
            "observedGeneration": _observed_generation(),
            "conditions": _conditions(
                "Ready: every broker runs as specified, there is a controller, and nothing is left to do."
            ),
            "version": _text("Version of the brokers that run; several while they are replaced."),
            "clusterId": _text("Id that the cluster gave itself when it first started; clients see it."),
            "controllerId": _number("Id of the broker that is controller."),
            "controllerEpoch": _number("Number of the controller's reign; each election raises it."),
            "brokersReady": _text("Brokers that are ready, of those that are specified: 2/3."),
            "listeners": listed(
                "Where clients connect.",
                record(
                    "One listener.",
                    {
                        "name": _text("Its name."),
                        "type": _text("From where it is reached."),
                        "bootstrap": _text("What clients are given as bootstrap.servers; missing while unknown."),
                    },
                    required=["name"],
                ),
                key="name",
            ),
            "brokers": listed(
                "Every broker.",
                record(
                    "One broker.",
                    {
                        "id": _number("Its id."),
                        "state": _text(
                            "Running: its pod is ready and it is registered in ZooKeeper. Starting: one of these is "
                            "not so yet. Restarting: its pod is being ended. Pending: its pod has no node. Lost: "
                            "its node is gone or not ready. Missing: it has no pod."
                        ),
                        "pod": _text("Its pod."),
                        "node": _text("The node where it runs."),
                        "rack": _text("Its rack, as it told it."),
                        "outdated": truth("Whether its pod awaits a restart, to become as specified."),
                        "reason": _text("Why it is not running."),
                    },
                    required=["id", "state"],
                ),
                key="id",
            ),
            "roll": record(
                "The restart of pods that are not as specified; missing when there are none.",
                {"waitingFor": _text("What the next restart waits for; missing when it waits for nothing.")},
            ),
            "rebalance": record(
                "Replicas on the move; missing when there are none.",
                {
                    "remaining": _number("Partitions that are not yet where they shall be."),
                    "total": _number("Partitions of the cluster."),
                    "reason": _text("Why they move."),
                },
            ),
            "zookeeper": record(
                "The ensemble of the cluster's own.",
                {"ready": _text("Members that are ready, of those specified: 3/3.")},
            ),
            "warnings": listed("What in the specification has no effect, a sentence each.", _text("A sentence.")),
        },
    )


def topic_status_schema() -> Schema:
    """The field `status` of a Topic."""
    return record(
        "What the operator has seen last; written by the operator alone.",
        {
            "observedGeneration": _observed_generation(),
            "conditions": _conditions("Ready: the topic is as specified, with every replica in sync."),
            "topicId": _text("Id of the topic; a topic that is made anew under the name has another."),
            "partitions": _number("Partitions that there are."),
            "replicas": _number("Replicas of each partition."),
            "underReplicated": _number("Partitions that lack an in-sync replica."),
            "offline": _number("Partitions without a leader."),
            "sizeBytes": _number("Bytes of the leaders' logs; missing while nobody has told."),
            "size": _text("The same for people: 1.5Gi."),
            "groups": listed(
                "Consumer groups that have committed offsets in the topic, those that are furthest behind first.",
                record(
                    "One group.",
                    {
                        "group": _text("Its name."),
                        "lagRecords": _number("Records that it has not committed yet, of all partitions."),
                        "lagSeconds": {
                            "description": "Age of the oldest of them, in the partition where that is highest.",
                            "type": "number",
                        },
                    },
                    required=["group"],
                ),
                key="group",
            ),
            "adopted": listed(
                "With drift: Adopt, what others set beside the specification: partitions=N and KEY=VALUE.",
                _text("One of them."),
            ),
            "warnings": listed(
                "What in the specification has no effect, or what else a person should know, a sentence each.",
                _text("A sentence."),
            ),
        },
    )


def _text(description: str) -> Schema:
    return {"description": description, "type": "string"}


def _number(description: str) -> Schema:
    return {"description": description, "type": "integer", "format": "int64"}


def _observed_generation() -> Schema:
    return whole("The metadata.generation of the specification that the rest of the status is about.", low=0)


def _conditions(ready: str) -> Schema:
    return listed(
        f"Conditions in Kubernetes' usual form. {ready}",
        record(
            "One condition.",
            {
                "type": text("What it is about.", max_length=316),
                "status": text("Whether it holds.", values=["True", "False", "Unknown"]),
                "reason": text("Why, in one word.", max_length=1_024),
                "message": {"description": "Why, in sentences.", "type": "string", "maxLength": 32_768},
                "lastTransitionTime": {
                    "description": "When the status last changed.",
                    "type": "string",
                    "format": "date-time",
                },
                "observedGeneration": _observed_generation(),
            },
            required=["type", "status", "reason", "message", "lastTransitionTime"],
        ),
        key="type",
    )
