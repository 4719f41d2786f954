"""The guide to the connector has every option and metric, and its examples are valid."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pyspark_odradek
from odradek_testkit.interop.guides import fenced_blocks
from pyspark_odradek.data_source import DefaultSource
from pyspark_odradek.formats.value_formats import value_decoder
from pyspark_odradek.observation.query_metrics import QueryCollector, QueryTable
from pyspark_odradek.observation.query_states import QueryState

PACKAGE = Path(pyspark_odradek.__file__).parent
GUIDE = (Path(__file__).resolve().parents[3] / "docs/spark.md").read_text(encoding="utf-8")
CAMEL = re.compile(r"(?=.*[A-Z])[a-z]+[A-Za-z]*(?:\.[a-z]+[A-Za-z]*)?")
OF_OTHERS = {"subscribe", "assign", "topic", "kafka.bootstrap.servers", "path", "checkpointLocation"}


def options() -> set[str]:
    """Every option that a module parses. Options have names like `minPartitions`, and no other text there has."""
    found = set()
    for path in [*(PACKAGE / "options").glob("*_options.py"), PACKAGE / "formats/value_formats.py"]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and CAMEL.fullmatch(node.value):
                found.add(node.value)
    return found


def test_every_option_is_described() -> None:
    assert {"minPartitions", "kafkaConsumer.pollTimeoutMs", "valueFormat", "progressGroup"} <= options()
    assert {name for name in options() if f"`{name}`" not in GUIDE} == set()


def test_every_option_of_the_table_exists() -> None:
    table = GUIDE.partition("| option | default |")[2].partition("\n\n")[0]
    rows = [row for row in table.splitlines() if row.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}
    assert listed - OF_OTHERS <= options() | {"configFile"}


def test_examples_use_existing_options() -> None:
    blocks = fenced_blocks(GUIDE, "python")
    assert len(blocks) >= 10
    named = {name for block in blocks for name in re.findall(r'option\("([\w.]+)"', block)}
    assert named - OF_OTHERS <= options()
    for block in blocks:
        ast.parse(block)


def test_the_avro_example_is_understood() -> None:
    (block,) = [each for each in fenced_blocks(GUIDE, "python") if "valueAvroSchema" in each]
    schema = re.findall(r"schema = '(.*)'", block)[0]
    made = value_decoder({"valueFormat": "avro", "valueAvroSchema": schema, "valueAvroPrefix": "confluent"})
    assert made is not None
    assert made.value_type.simpleString() == "struct<id:bigint>"


def test_every_column_is_described() -> None:
    base = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "includeHeaders": "true"}
    schema = DefaultSource({**base, "valueFormat": "string"}).schema()
    table = GUIDE.partition("## Columns")[2].partition("## ")[0]
    assert {name for name in schema.names if f"`{name}`" not in table} == set()


def test_every_metric_is_described() -> None:
    table = QueryTable({"q": QueryState(query_id="q", name=None)})
    names = {family.name.removeprefix("odradek_spark_query_") for family in QueryCollector(table).collect()}
    text = GUIDE.replace(
        "`avg_…`, `max_…`, `total_…`", " ".join(f"`{each}_offsets_behind_latest`" for each in ("avg", "max", "total"))
    )
    assert {name for name in names if f"`{name}`" not in text and f"`{name}_total`" not in text} == set()
