"""The ledger remembers over restarts which topics had a resource."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek_operator.crds import Deletion, Topic
from odradek_operator.embedded.ledger import Ledger
from odradek_operator.errors import EmbeddedError

KEPT = Topic(name="kept", cluster="demo")
LOOSE = Topic(name="loose", cluster="demo", deletion=Deletion.DELETE)


def test_what_is_removed_between_two_runs_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "resources.json"
    Ledger(path).note({"kept": KEPT, "loose": LOOSE})
    ledger = Ledger(path)
    ledger.note({"kept": KEPT})
    assert ledger.removed({"kept": KEPT}) == {"loose": LOOSE}
    ledger.forget(["loose"])
    assert Ledger(path).removed({}) == {"kept": KEPT}


def test_the_policy_that_was_written_last_counts(tmp_path: Path) -> None:
    path = tmp_path / "resources.json"
    Ledger(path).note({"loose": LOOSE})
    Ledger(path).note({"loose": Topic(name="loose", cluster="demo", deletion=Deletion.PROTECT)})
    assert Ledger(path).removed({})["loose"].deletion is Deletion.PROTECT


def test_nothing_is_remembered_at_first(tmp_path: Path) -> None:
    assert Ledger(tmp_path / "resources.json").removed({}) == {}


@pytest.mark.parametrize(
    "text", ["", "[]", '{"topics": {"a": {}}}', '{"topics": {"a": {"cluster": "c", "deletion": 1}}}']
)
def test_a_damaged_file_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "resources.json"
    path.write_text(text)
    with pytest.raises(EmbeddedError, match="is damaged"):
        Ledger(path)


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedError, match="cannot be written"):
        Ledger(tmp_path / "missing" / "resources.json").note({"kept": KEPT})
