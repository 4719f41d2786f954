"""The guides in `docs/`: their samples, and their commands run as they stand there. For tests only.

The text of a guide enters; its fenced blocks leave, or what Kafka's tools print that its commands name.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

from odradek.app.properties import parse_properties
from odradek_testkit.apache import QUICK_START, run_tool

CLASSES: Final = {
    "kafka-broker-api-versions.sh": "kafka.admin.BrokerApiVersionsCommand",
    "kafka-log-dirs.sh": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-reassign-partitions.sh": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions.sh": "org.apache.kafka.tools.TransactionsCommand",
    "zookeeper-shell.sh": "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka",
}
"""What each script of Kafka's `bin/` runs."""


def fenced_blocks(text: str, language: str) -> list[str]:
    """The content of each block of a language, as ```sh begins one."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


class Guide:
    """The commands and samples of the guide, run as they stand there."""

    def __init__(self, text: str, kafka: Path, directory: Path) -> None:
        """Files that commands name are those of `directory`."""
        self.properties: Final = parse_properties("\n".join(fenced_blocks(text, "properties")))
        """The sample of `server.properties`."""
        lines = "\n".join(fenced_blocks(text, "sh")).replace("\\\n", " ").splitlines()
        self._commands = [shlex.split(line) for line in lines if line.startswith("bin/")]
        self._kafka = kafka
        self._directory = directory
        self.places: dict[str, str] = {}
        """Values of the variables `$BOOTSTRAP` and `$ZOOKEEPER`."""

    def file(self, name: str) -> Path:
        """A file that commands name."""
        return self._directory / name

    def run(self, script: str, *options: str) -> str:
        """What the only command prints that runs this script with these words among its own."""
        found = [words for words in self._commands if words[0] == f"bin/{script}" and {*options} <= {*words}]
        assert len(found) == 1, f"{script} with {options} stands {len(found)} times in the guide"
        words = [self.places.get(word, word) for word in found[0][1:]]
        words = [str(self.file(word)) if word.endswith(".json") else word for word in words]
        if script == "zookeeper-shell.sh":
            words.insert(0, "-server")
        return run_tool(self._kafka, CLASSES[script], words, options=QUICK_START)
