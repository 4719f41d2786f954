"""Sections of the guide are found by their titles."""

from __future__ import annotations

import pytest

from support.guide import first_commands


def test_the_first_commands_of_a_section() -> None:
    assert first_commands("3. Make a cluster").startswith("kubectl apply -f manifests/examples/cluster.yaml\n")
    assert "odradek produce greetings" in first_commands("4. The first record")


def test_a_section_that_is_not_there() -> None:
    with pytest.raises(LookupError, match=r"no commands in a section '99\. Nothing'"):
        first_commands("99. Nothing")
