"""Generates `odradek.protocol.messages` from the message definitions inside Apache Kafka's jars.

Usage: `make messages`, which fetches the jars.
To add an API, put its name into `MODULES` and its row into `odradek.protocol.apis.API_TABLE`. The definitions of APIs
that Kafka does not have are in `private_messages`, in the same form.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

KAFKA_VERSION: Final = "3.9.1"
NEWER_KAFKA_VERSION: Final = "4.1.0"
"""The release whose definitions of `NEWER_MODULES` are used, because its clients use versions that 3.9 lacks."""

PACKAGE: Final = Path(__file__).resolve().parents[1] / "odradek/protocol/messages"
ROOT: Final = PACKAGE.parents[3]
PRIVATE_DEFINITIONS: Final = Path(__file__).resolve().parent / "private_messages"
"""Definitions of the messages that Kafka does not have."""

MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "produce": ("Produce", "InitProducerId", "DescribeProducers"),
    "fetch": ("Fetch", "ListOffsets", "OffsetForLeaderEpoch", "DeleteRecords"),
    "offsets": ("OffsetCommit", "OffsetFetch", "OffsetDelete"),
    "membership": ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"),
    "groups": ("FindCoordinator", "DescribeGroups", "ListGroups", "DeleteGroups"),
    "consumer_protocol": ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment"),
    "topics": ("CreateTopics", "DeleteTopics", "CreatePartitions"),
    "replicas": ("ElectLeaders", "AlterPartitionReassignments", "ListPartitionReassignments"),
    "log_dirs": ("AlterReplicaLogDirs", "DescribeLogDirs"),
    "configs": ("DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs"),
    "cluster": ("ApiVersions", "Metadata", "DescribeCluster", "UpdateFeatures"),
    "sasl": ("SaslHandshake", "SaslAuthenticate"),
    "acls": ("DescribeAcls", "CreateAcls", "DeleteAcls"),
    "delegation_tokens": (
        "CreateDelegationToken",
        "RenewDelegationToken",
        "ExpireDelegationToken",
        "DescribeDelegationToken",
    ),
    "quotas": ("DescribeClientQuotas", "AlterClientQuotas"),
    "scram": ("DescribeUserScramCredentials", "AlterUserScramCredentials"),
    "transactions": (
        "AddPartitionsToTxn",
        "AddOffsetsToTxn",
        "EndTxn",
        "WriteTxnMarkers",
        "TxnOffsetCommit",
        "DescribeTransactions",
        "ListTransactions",
        "PrepareTxn",
    ),
    "internal": (
        "LeaderAndIsr",
        "StopReplica",
        "UpdateMetadata",
        "ControlledShutdown",
        "AlterPartition",
        "AllocateProducerIds",
    ),
}
"""The APIs of each module. A name without a request and a response is a message that belongs to no API."""

NEWER_MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "consumer_groups": ("ConsumerGroupHeartbeat", "ConsumerGroupDescribe"),
}
"""The modules whose definitions come from `NEWER_KAFKA_VERSION`."""

NEWER_APIS: Final = frozenset({"EndTxn", "TxnOffsetCommit"})
"""The APIs in `MODULES` whose definitions come from `NEWER_KAFKA_VERSION`: their latest versions belong to transaction
version 2 (KIP-890)."""

SAME_FORM: Final[Mapping[str, int]] = {"Produce": 12}
"""The last version of an API that has the form of the one that `KAFKA_VERSION` knows last. Kafka 4 defines it too, but
without the oldest versions."""

RECORD_MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "consumer_group_records": (
        "ConsumerGroupMetadataValue",
        "ConsumerGroupPartitionMetadataValue",
        "ConsumerGroupMemberMetadataValue",
        "ConsumerGroupTargetAssignmentMetadataValue",
        "ConsumerGroupTargetAssignmentMemberValue",
        "ConsumerGroupCurrentMemberAssignmentValue",
        "ConsumerGroupRegularExpressionValue",
    ),
}
"""The modules of values in `__consumer_offsets`. Their definitions are in the jar of the group coordinator of
`NEWER_KAFKA_VERSION`."""

LINE_LENGTH: Final = 120
"""Maximum number of characters in a line of a docstring."""

SECRETS: Final = frozenset({"auth_bytes", "hmac", "salt", "salted_password"})
"""Fields with a password, key or token."""

_COMMENT: Final = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*')
_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SIMPLE: Final = {
    "bool": "bool",
    "int8": "int",
    "int16": "int",
    "uint16": "int",
    "int32": "int",
    "uint32": "int",
    "int64": "int",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "records": "bytes",
    "uuid": "UUID",
}


class DefinitionError(Exception):
    """A definition has a feature that this generator does not support."""


def snake(name: str) -> str:
    """Return the name of a field in snake case: `throttle_time_ms` for `ThrottleTimeMs`."""
    return _WORD.sub("_", name.replace("KRaft", "Kraft")).lower()


class Definitions:
    """The message definitions of one jar, and the private ones."""

    def __init__(self, jar: Path, newer: Definitions | None = None) -> None:
        """`newer`: the definitions of `NEWER_APIS`."""
        self._jar = zipfile.ZipFile(jar)
        self._names = frozenset(self._jar.namelist())
        self._newer = newer

    def of(self, api: str) -> list[dict[str, Any]]:
        """Return the definitions of the API's request and response, or of the single message with that name."""
        if self._newer is not None and api in NEWER_APIS:
            return self._newer.of(api)
        names = [api] if self._path(api) in self._names else [f"{api}Request", f"{api}Response"]
        found = [json.loads(_COMMENT.sub(r"\1", self._text(name))) for name in names]
        if api in SAME_FORM:
            for definition in found:
                oldest, _, _ = definition["validVersions"].partition("-")
                definition["validVersions"] = f"{oldest}-{SAME_FORM[api]}"
        return found

    def _text(self, name: str) -> str:
        private = PRIVATE_DEFINITIONS / f"{name}.json"
        return private.read_text(encoding="utf-8") if private.exists() else self._jar.read(self._path(name)).decode()

    @staticmethod
    def _path(name: str) -> str:
        return f"common/message/{name}.json"


@dataclass(frozen=True)
class _Field:
    """The source of one field of a class."""

    name: str
    annotation: str
    arguments: tuple[str, ...]

    def line(self) -> str:
        return f"    {self.name}: {self.annotation} = wire({', '.join(self.arguments)})"


class _Classes:
    """The classes of one message, nested structs first."""

    def __init__(self, definition: Mapping[str, Any]) -> None:
        self._definition = definition
        self._message: str = definition["name"]
        self._common = {struct["name"]: struct for struct in definition.get("commonStructs", ())}
        self._made: dict[str, str] = {}

    def source(self) -> Iterator[str]:
        """Yield the source of each class."""
        about, api_key = self._about()
        attributes = [f'VERSIONS: ClassVar = "{self._definition["validVersions"]}"']
        attributes.append(f'FLEXIBLE: ClassVar = "{self._definition.get("flexibleVersions", "none")}"')
        if api_key is not None:
            attributes.insert(0, f"API_KEY: ClassVar = ApiKey.{api_key}")
        self._add(self._message, about, self._definition["fields"], attributes)
        yield from self._made.values()

    def _about(self) -> tuple[str, str | None]:
        kind = self._definition["type"]
        if kind not in ("request", "response"):
            return f"The message {self._message}.", None
        api = self._message.removesuffix(kind.capitalize())
        article = "an" if api[0] in "AEIO" else "a"
        return f"Body of {article} {api} {kind}.", snake(api).upper()

    def _add(self, name: str, about: str, fields: Sequence[Mapping[str, Any]], attributes: Sequence[str]) -> None:
        lines = [self._field(field).line() for field in fields]
        head = ["@message", f"class {name}(WireMessage):", f'    """{about}"""', ""]
        if attributes:
            head += [*(f"    {line}" for line in attributes), ""]
        self._made[name] = "\n".join([*head, *lines])

    def _struct(self, kind: str, fields: Sequence[Mapping[str, Any]]) -> str:
        """Add the class of a nested struct. Return its name, which begins with the name of its message."""
        api = re.sub("(Request|Response)$", "", self._message)
        rest = kind.removeprefix(api)
        name = kind if kind.startswith(self._message) else self._message + (rest if rest[:1].isupper() else kind)
        if name not in self._made:
            self._add(name, f"{kind} in {self._message}.", fields, ())
        return name

    def _field(self, field: Mapping[str, Any]) -> _Field:
        kind: str = field["type"]
        is_array = kind.startswith("[]")
        kind = kind.removeprefix("[]")
        if kind in _SIMPLE:
            annotation, first, is_struct = _SIMPLE[kind], f'"{kind}"', False
        else:
            nested = field["fields"] if "fields" in field else self._common[kind]["fields"]
            annotation = first = self._struct(kind, nested)
            is_struct = True
        arguments = [first, f'"{field["versions"]}"']
        if is_array:
            annotation = f"tuple[{annotation}, ...]"
            arguments.append("array=True")
        nullable = field.get("nullableVersions")
        if nullable:
            annotation += " | None"
            arguments.append(f'nullable="{nullable}"')
        if "tag" in field:
            arguments += [f"tag={int(field['tag'])}", f'tagged="{field["taggedVersions"]}"']
        if "default" in field:
            arguments.append(f"default={_default(field, is_array or is_struct)}")
        name = snake(field["name"])
        if name in SECRETS:
            arguments.append("secret=True")
        return _Field(name, annotation, tuple(arguments))


def _default(field: Mapping[str, Any], is_compound: bool) -> str:
    text = str(field["default"])
    if field["default"] in (None, "null"):
        return "None"
    if is_compound:
        raise DefinitionError(f"the field {field['name']} has the default {text}")
    if field["type"] == "bool":
        return text.capitalize()
    if field["type"] == "string":
        return json.dumps(text)
    return repr(int(text, 0))


def _module(apis: Sequence[str], definitions: Definitions) -> str:
    classes = [source for api in apis for each in definitions.of(api) for source in _Classes(each).source()]
    body = "\n\n\n".join(classes)
    about = textwrap.wrap(f'"""Messages of {", ".join(apis)}.', width=LINE_LENGTH)
    lines = [*about, "", "Generated by `make messages`: do not edit.", '"""', ""]
    lines += ["from __future__ import annotations", "", "from typing import ClassVar"]
    if re.search(r"\bUUID\b", body):
        lines.append("from uuid import UUID")
    lines.append("")
    if "ApiKey." in body:
        lines.append("from odradek.protocol.keys import ApiKey")
    lines += ["from odradek.protocol.fields import WireMessage, message, wire", "", ""]
    return "\n".join(lines) + body + "\n"


def _package() -> str:
    rows = [f'    "{api}": "{module}",' for module, apis in {**MODULES, **NEWER_MODULES}.items() for api in apis]
    about = "One class for each message that Odradek knows. Generated by `make messages`: do not edit."
    lines = [f'"""{about}"""', "", "from __future__ import annotations", ""]
    lines += [
        "from collections.abc import Mapping",
        "from types import MappingProxyType",
        "from typing import Final",
        "",
    ]
    lines += ["MODULE_OF: Final[Mapping[str, str]] = MappingProxyType({", *rows, "})"]
    lines += ['"""The module of each API\'s messages."""', ""]
    return "\n".join(lines)


def _formatted(source: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--config", str(ROOT / "pyproject.toml"), "-"]
    sorted_imports = [*command[:3], "check", "--select", "I", "--fix", "--quiet", *command[4:]]
    for each in (sorted_imports, command):
        source = subprocess.run(each, input=source, capture_output=True, text=True, check=True).stdout
    return source


def generate(clients: Path, newer_clients: Path, newer_coordinator: Path) -> dict[str, str]:
    """Return the source of each module of the package by file name. The jars are those of the clients of
    `KAFKA_VERSION` and `NEWER_KAFKA_VERSION`, and of the group coordinator of `NEWER_KAFKA_VERSION`."""
    sources = {"__init__.py": _formatted(_package())}
    newer = Definitions(newer_clients)
    for modules, definitions in (
        (MODULES, Definitions(clients, newer)),
        (NEWER_MODULES, newer),
        (RECORD_MODULES, Definitions(newer_coordinator)),
    ):
        sources |= {f"{name}.py": _formatted(_module(apis, definitions)) for name, apis in modules.items()}
    return sources


def main() -> None:
    """Parse the command line and write the package."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.parse_args()
    sources = generate(*fetched_jars())
    PACKAGE.mkdir(exist_ok=True)
    for path in PACKAGE.glob("*.py"):
        path.unlink()
    for name, source in sources.items():
        (PACKAGE / name).write_text(source, encoding="utf-8")


def fetched_jars() -> tuple[Path, Path, Path]:
    """Return the jars for `generate`, which are downloaded from Maven Central to `.interop/` once."""
    from odradek_testkit.interop.apache import jars

    older, newer = (jars(version, ROOT / ".interop") for version in (KAFKA_VERSION, NEWER_KAFKA_VERSION))
    return (
        older / f"kafka-clients-{KAFKA_VERSION}.jar",
        newer / f"kafka-clients-{NEWER_KAFKA_VERSION}.jar",
        newer / f"kafka-group-coordinator-{NEWER_KAFKA_VERSION}.jar",
    )


if __name__ == "__main__":
    main()
