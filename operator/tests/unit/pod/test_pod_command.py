"""`odradek-pod`: its help, lazy imports, and error messages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.base.setting_definitions import parse_properties
from odradek_operator.pod.pod_command import main

BROKER = {
    "CLUSTER": "demo",
    "POD_NAME": "demo-kafka-0",
    "POD_NAMESPACE": "events",
    "NODE_NAME": "a",
    "LISTENERS": '[{"name":"plain","port":9092,"type":"internal"}]',
}


def test_help_lists_all_commands_and_imports_none() -> None:
    program = (
        "import sys\nfrom odradek_operator.pod.pod_command import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted(name for name in sys.modules if name.split('.')[0] in "
        "('kopf', 'kubernetes', 'kazoo', 'numpy', 'pyspark', 'yaml') or name.startswith('odradek_operator.exporter')))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert all(f"  {name} " in answer.stdout for name in ("broker", "exporter", "mirror", "zookeeper"))
    assert answer.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("module", ["zookeeper_pod", "broker", "api_reader"])
def test_commands_import_few_packages(module: str) -> None:
    """The ZooKeeper image has only click and prometheus-client, and a broker must start quickly."""
    program = (
        f"import sys\nimport odradek_operator.pod.{module}\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & "
        "{'kopf', 'kubernetes', 'kazoo', 'numpy', 'pyspark', 'yaml', 'kio', 'rich', 'uvloop', 'cramjam', 'crc32c'}))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.strip() == "[]"


def test_the_exporter_is_found() -> None:
    assert CliRunner().invoke(main, ["exporter", "--help"]).exit_code == 0


def test_a_mirror_gets_its_arguments_and_the_environment(tmp_path: Path) -> None:
    """The process is replaced by the program `odradek` beside Python."""
    program = tmp_path / "odradek"
    program.write_text('#!/bin/sh\necho "$@ $GREETING $$"\n')
    program.chmod(0o755)
    code = (
        f"import sys; sys.executable = {str(tmp_path / 'python')!r}\n"
        "from odradek_operator.pod.pod_command import main; main()"
    )
    arguments = ["mirror", "--config=/etc/odradek/mirror.yaml", "--metrics-port", "9404", "--check", "--help"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "GREETING": "hello"},
    )
    found, _ = process.communicate(timeout=60)
    assert found.split() == [*arguments, "hello", str(process.pid)]


def test_properties_can_be_printed(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("zookeeper.connect=zk:2181\n")
    result = CliRunner().invoke(main, ["broker", "--properties", str(path), "--print"], env=BROKER)
    assert result.exit_code == 0
    assert parse_properties(result.stdout)["broker.id"] == "0"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["broker", "--properties", "/nowhere/server.properties"], "cannot be read: No such file"),
        (["zookeeper", "--properties", "/nowhere/zookeeper.properties"], "ENSEMBLE_REPLICAS is not set"),
    ],
)
def test_errors_are_printed_without_a_traceback(arguments: list[str], message: str) -> None:
    program = [sys.executable, "-c", "from odradek_operator.pod.pod_command import main; main()", *arguments]
    answer = subprocess.run(program, capture_output=True, text=True, env=BROKER, check=False, timeout=60)
    assert answer.returncode == 1
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr
