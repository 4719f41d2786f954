"""Tests that sections of the guide are found by their titles."""

from __future__ import annotations

import pytest

from support.guide import commands


def test_the_commands_of_a_section() -> None:
    assert commands("3. Make a cluster").startswith("kubectl apply -f manifests/examples/cluster.yaml\n")
    assert "odradek produce greetings" in commands("4. The first record")
    assert "finalizers" in commands("11. Remove a cluster or the operator", containing="while read")


def test_a_section_that_is_not_there() -> None:
    with pytest.raises(LookupError, match=r"no commands in a section '99\. Nothing'"):
        commands("99. Nothing")
