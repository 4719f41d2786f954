"""A member waits for the certificates for which its pod was made."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek_operator.objects import names
from odradek_operator.objects.properties_file import certificates_digest
from odradek_operator.pod import zookeeper_pod

FILES = {names.ZOOKEEPER_KEYSTORE: b"key and certificate", names.CLUSTER_CA_FILE: b"authority"}


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content)


async def test_it_starts_when_the_mounted_files_are_those(tmp_path: Path) -> None:
    waits = []

    async def next_file(seconds: float) -> None:
        waits.append(seconds)
        name = list(FILES)[len(waits) - 1]
        write(tmp_path, {name: FILES[name]})

    await zookeeper_pod.wait_for_certificates(tmp_path, certificates_digest(FILES), pause=next_file)
    assert len(waits) == 2
    await zookeeper_pod.wait_for_certificates(tmp_path / "missing", None)
    assert len(waits) == 2


async def test_it_does_not_wait_forever(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def at_once(seconds: float) -> None:
        assert seconds > 0

    write(tmp_path, FILES)
    await zookeeper_pod.wait_for_certificates(tmp_path, "of others", pause=at_once)
    assert "the pod was made for others" in caplog.text
