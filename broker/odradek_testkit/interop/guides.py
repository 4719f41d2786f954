"""Reads the samples of the guides in `docs/`, and runs their commands of Kafka's tools unchanged."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

from odradek.base.setting_definitions import parse_properties
from odradek_testkit.interop.apache import quick_start, run_tool

CLASSES: Final = {
    "kafka-broker-api-versions.sh": "kafka.admin.BrokerApiVersionsCommand",
    "kafka-log-dirs.sh": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-reassign-partitions.sh": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions.sh": "org.apache.kafka.tools.TransactionsCommand",
    "zookeeper-shell.sh": "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka",
}
"""The main class of each script in Kafka's `bin/`."""


def fenced_blocks(text: str, language: str) -> list[str]:
    """Return the content of each fenced block of a language, such as ```sh."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


class Guide:
    """Runs commands of a guide unchanged, and reads its samples."""

    def __init__(self, text: str, kafka: Path, directory: Path) -> None:
        """`directory` has the files that the commands refer to."""
        self.properties: Final = parse_properties("\n".join(fenced_blocks(text, "properties")))
        """Return the sample of `server.properties`."""
        lines = "\n".join(fenced_blocks(text, "sh")).replace("\\\n", " ").splitlines()
        self._commands = [shlex.split(line) for line in lines if line.startswith("bin/")]
        self._kafka = kafka
        self._directory = directory
        self.places: dict[str, str] = {}
        """Set the variables `$BOOTSTRAP` and `$ZOOKEEPER`."""

    def file(self, name: str) -> Path:
        """Write a file that commands refer to."""
        return self._directory / name

    def run(self, script: str, *options: str) -> str:
        """Return the output of the only command of the guide that has this script and these options."""
        found = [words for words in self._commands if words[0] == f"bin/{script}" and {*options} <= {*words}]
        assert len(found) == 1, f"the guide has {len(found)} commands with {script} and {options}, expected 1"
        words = [self.places.get(word, word) for word in found[0][1:]]
        words = [str(self.file(word)) if word.endswith(".json") else word for word in words]
        if script == "zookeeper-shell.sh":
            words.insert(0, "-server")
        return run_tool(self._kafka, CLASSES[script], words, options=quick_start(self._kafka))
