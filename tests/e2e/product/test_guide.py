"""The guide's first steps, run as they stand there; its section 3 makes the cluster of all tests of this folder."""

from __future__ import annotations

from support.guide import run_guide
from support.product import TOPIC, Demo


def test_the_first_record_of_the_guide(demo: Demo) -> None:
    said = run_guide(demo.kubectl, "4. The first record")

    assert said.splitlines()[-1] == "hello"
    demo.kubectl.delete(TOPIC, "greetings")
