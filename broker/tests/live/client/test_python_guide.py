"""The examples of docs/python.md run unchanged against real brokers and print what their comments say."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import odradek
from odradek.testing.running_cluster import RunningCluster
from odradek_testkit.interop.guides import fenced_blocks
from odradek_testkit.security.secured_cluster import BROKER_PASSWORD, SecuredCluster

pytestmark = [pytest.mark.java, pytest.mark.slow]

ROOT = Path(__file__).parents[4]
GUIDE = (ROOT / "docs/python.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
SECURED = "localhost:9093"


def run(source: str) -> None:
    """Run an example, which may have `await` outside of a function."""
    code = compile(source, "docs/python.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names: dict[str, object] = {"__name__": "example"}
    if not code.co_flags & inspect.CO_COROUTINE:
        exec(code, names)
        return

    async def main() -> None:
        await eval(code, names)

    asyncio.run(main())


def expected(source: str) -> list[str]:
    """Return the comments behind the calls of `print`."""
    return re.findall(r"^ *print\(.*\)  # (.*)$", source, re.MULTILINE)


def test_the_examples_do_what_they_say(odradek_single: RunningCluster, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = [block for block in fenced_blocks(GUIDE, "python") if SECURED not in block]
    assert len(blocks) >= 9
    for block in blocks:
        assert expected(block), f"nothing shows that this example works:\n{block}"
        run(block.replace("localhost:9092", odradek_single.bootstrap))
        assert capsys.readouterr().out.splitlines() == expected(block), block


@pytest.fixture
def secured(odradek_zookeeper: str, tmp_path: Path) -> Iterator[SecuredCluster]:
    cluster = SecuredCluster(tmp_path, odradek_zookeeper)
    yield cluster
    cluster.stop()


def test_the_example_with_tls_and_sasl_works(secured: SecuredCluster, capsys: pytest.CaptureFixture[str]) -> None:
    secured.add(replicas=1).start()
    (block,) = [block for block in fenced_blocks(GUIDE, "python") if SECURED in block]
    replacements = {
        SECURED: f"localhost:{secured.between[0]}",
        "/etc/kafka/ca.pem": f"{secured.folder}/root.pem",
        'username="alice" password="secret"': f'username="broker" password="{BROKER_PASSWORD}"',
    }
    for text, actual in replacements.items():
        assert text in block
        block = block.replace(text, actual)
    run(block)
    assert capsys.readouterr().out.splitlines() == expected(block)


def test_the_example_of_the_readme_works(odradek_single: RunningCluster, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = [block for block in fenced_blocks(README, "python") if "import Producer" in block]
    with odradek.BlockingAdmin(odradek_single.bootstrap) as admin:
        admin.create_topics([odradek.NewTopic(name="greetings", partitions=1)])
    run(block.replace("127.0.0.1:9092", odradek_single.bootstrap))
    assert capsys.readouterr().out.startswith("RecordMetadata(topic='greetings', partition=0, offset=0")
