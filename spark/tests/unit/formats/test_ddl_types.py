"""The parser of schemas. A test with a real Spark compares it with `StructType.fromDDL`."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from odradek.base.errors import ConfigError
from pyspark_odradek.formats.ddl_types import parse_schema


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a int", "struct<a:int>"),
        ("a INT, b: String NOT NULL COMMENT 'it''s', `c ``d` BIGINT", "struct<a:int,b:string,c `d:bigint>"),
        ("a tinyint, b byte, c smallint, d short", "struct<a:tinyint,b:tinyint,c:smallint,d:smallint>"),
        ("a long, b real, c float, d double", "struct<a:bigint,b:float,c:float,d:double>"),
        ("a decimal, b dec(5), c numeric(38, 38)", "struct<a:decimal(10,0),b:decimal(5,0),c:decimal(38,38)>"),
        ("a date, b timestamp, c timestamp_ntz", "struct<a:date,b:timestamp,c:timestamp_ntz>"),
        ("a char(3), b varchar(9), c binary, d boolean", "struct<a:string,b:string,c:binary,d:boolean>"),
        ("a array<array<int>>, b map<string,struct<x int, y: date>>", None),
        ("`struct` struct<>", "struct<struct:struct<>>"),
    ],
)
def test_ddl_is_understood(text: str, expected: str | None) -> None:
    if expected is None:
        expected = "struct<a:array<array<int>>,b:map<string,struct<x:int,y:date>>>"
    assert parse_schema("valueSchema", text).simpleString() == expected


def test_a_schema_may_be_json_and_everything_becomes_nullable() -> None:
    schema = parse_schema("valueSchema", "a ARRAY<INT> NOT NULL, b MAP<STRING, STRUCT<x: INT NOT NULL>>")
    strict = schema.json().replace("true", "false")
    assert StructType.fromJson(schema.jsonValue()) == schema
    assert parse_schema("valueSchema", strict) == schema


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it has no column"),
        ("  ", "it has no column"),
        ("a", "the end is not a supported type"),
        ("a int b", "'b' follows field 'a'"),
        ("a int,", "the end stands where the name of a field"),
        ("a blob", "'blob' is not a supported type"),
        ("a interval", "'interval' is not a supported type"),
        ("a decimal(39)", "up to 38 digits"),
        ("a decimal(5, 6)", "no greater scale"),
        ("a decimal(x)", "'x' stands where a number"),
        ("a decimal(5", r"the end stands where \) of DECIMAL"),
        ("a varchar", "VARCHAR has 0 numbers"),
        ("a array<int", "the end stands where > of ARRAY"),
        ("a map<string>", "'>' stands where , of MAP"),
        ("a array int", "'int' stands where < of ARRAY"),
        ("a int not", "NULL must follow NOT"),
        ("a int comment b", "a text in quotes must follow COMMENT"),
        ("a int; b int", "'; b int' is not understood"),
        ("a " + "array<" * 60 + "int" + ">" * 60, "more than 50 deep"),
        ("a " + "struct<a " * 60 + "int" + ">" * 60, "more than 50 deep"),
        ('{"type": "struct"}', "not JSON of a StructType"),
        ("{", "not JSON of a StructType"),
    ],
)
def test_mistakes_are_named(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        parse_schema("valueSchema", text)
    assert str(caught.value).startswith("valueSchema=")
