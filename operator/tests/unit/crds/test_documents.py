"""YAML documents with the lines of their fields."""

from __future__ import annotations

import pytest

from odradek_operator.crds.documents import DocumentError, parse_documents


def test_documents_know_their_file_number_and_lines() -> None:
    text = "\n".join(["# a comment", "a: 1", "b:", "  c: [1, 2]", "---", "", "---", "d: x"])
    first, second = parse_documents(text, "folder/file.yaml")
    assert (first.source, first.number, second.number) == ("folder/file.yaml", 1, 3)
    assert first.content == {"a": 1, "b": {"c": [1, 2]}}
    assert first.content.lines == {"a": 2, "b": 3}
    assert first.content["b"].lines == {"c": 4}
    assert second.content.lines == {"d": 8}


def test_merge_keys_may_be_overridden() -> None:
    (document,) = parse_documents("base: &base {a: 1, b: 2}\nmore:\n  <<: *base\n  b: 3\n", "f")
    assert document.content["more"] == {"a": 1, "b": 3}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: [", "f:2: this is not valid YAML"),
        ("a: 1\nb: 2\na: 3", "f:3: this is not valid YAML: the field 'a' occurs twice"),
        ("a: {x: 1,\n x: 2}", "f:2: this is not valid YAML: the field 'x' occurs twice"),
        ("- 1", "f: document 1 must be a mapping"),
        ("a: 1\n---\njust text", "f: document 2 must be a mapping"),
        ("1: a", "f:1: this is not valid YAML: a field's name must be text, found 1"),
        ("a: !!python/object/apply:os.getcwd []", "f:1: this is not valid YAML: could not determine a constructor"),
        ("a: \x07", "f: this is not valid YAML"),
    ],
)
def test_the_error_about_an_invalid_document_has_its_line(text: str, problem: str) -> None:
    with pytest.raises(DocumentError) as raised:
        parse_documents(text, "f")
    assert str(raised.value).startswith(problem)


def test_an_empty_file_has_no_documents() -> None:
    assert parse_documents("# nothing\n---\n---\n", "f") == []
