"""Runs the guide's first steps unchanged. The commands of its section 3 create the cluster of this folder's tests."""

from __future__ import annotations

from support.guide import run_guide
from support.product import TOPIC, Demo


def test_the_first_record_of_the_guide(demo: Demo) -> None:
    output = run_guide(demo.kubectl, "4. The first record")

    assert output.splitlines()[-1] == "hello"
    demo.kubectl.delete(TOPIC, "greetings")
