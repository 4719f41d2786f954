"""Tests the Spark image's entry point: which command it runs for the arguments of Spark's Kubernetes scheduler."""

from __future__ import annotations

import importlib.util
import os
import pwd
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

PATH = Path(__file__).resolve().parents[2] / "images/spark/entrypoint.py"

EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_EXECUTOR_POD_NAME": "demo-exec-1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    **{f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in (10, 9, 0)},
}


@pytest.fixture(scope="module")
def entrypoint() -> ModuleType:
    spec = importlib.util.spec_from_file_location("entrypoint", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_submit_and_other_programs(entrypoint: ModuleType) -> None:
    assert entrypoint.command(["submit", "--version"], {}) == ["/opt/spark/bin/spark-submit", "--version"]
    assert entrypoint.command(["submit"], {"SPARK_HOME": "/s"}) == ["/s/bin/spark-submit"]
    assert entrypoint.command(["python3", "-c", "1"], {}) == ["python3", "-c", "1"]


def test_an_application_in_this_pod(entrypoint: ModuleType) -> None:
    module = ["python3", "-m", "pyspark_odradek.pipelines.kubernetes_driver"]
    assert entrypoint.command(["run", "--executors=2", "m", "--x"], {}) == [*module, "--executors=2", "m", "--x"]
    assert entrypoint.command(["pipeline", "--spec", "f"], {}) == [*module, "--spec", "f"]


def test_driver(entrypoint: ModuleType) -> None:
    found = entrypoint.command(
        ["driver", "--properties-file", "p", "--class", "C", "local:///a.py"], {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.1"}
    )
    assert found[0] == "/opt/spark/bin/spark-submit"
    assert found[found.index("--deploy-mode") + 1] == "client"
    assert "spark.driver.bindAddress=10.0.0.1" in found
    assert found[-5:] == ["--properties-file", "p", "--class", "C", "local:///a.py"]


def test_executor(entrypoint: ModuleType) -> None:
    found = entrypoint.command(["executor"], {**EXECUTOR, "JAVA_HOME": "/j", "SPARK_CLASSPATH": "/extra"})
    assert found[:4] == ["/j/bin/java", "-Dn=0", "-Dn=9", "-Dn=10"]
    assert {"-Xms1024m", "-Xmx1024m"} <= set(found)
    assert found[found.index("-cp") + 1] == "/opt/spark/conf:/extra:/opt/spark/jars/*"
    options = dict(zip(found[-14::2], found[-13::2], strict=True))
    assert options == {
        "--driver-url": "spark://CoarseGrainedScheduler@driver:7078",
        "--executor-id": "1",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.7",
        "--resourceProfileId": "0",
        "--podName": "demo-exec-1",
    }


@pytest.mark.parametrize("name", [name for name in EXECUTOR if "JAVA" not in name])
def test_what_is_missing_is_named(entrypoint: ModuleType, name: str) -> None:
    with pytest.raises(SystemExit, match=name):
        entrypoint.command(["executor"], {**EXECUTOR, name: ""})


def test_a_user_with_a_name_is_left_alone(entrypoint: ModuleType) -> None:
    known = pwd.getpwall()[0].pw_uid
    assert entrypoint.named({"A": "b"}, known, 0) == {"A": "b"}


def test_a_user_without_a_name_gets_one(entrypoint: ModuleType, tmp_path: Path) -> None:
    unknown = max(entry.pw_uid for entry in pwd.getpwall() if entry.pw_uid < 1 << 30) + 77_777
    found = entrypoint.named({"TMPDIR": str(tmp_path)}, unknown, 0)
    assert found["LD_PRELOAD"] == "libnss_wrapper.so"
    entry = Path(found["NSS_WRAPPER_PASSWD"]).read_text().split(":")
    assert (entry[0], entry[2]) == ("spark", str(unknown))
    assert Path(found["NSS_WRAPPER_GROUP"]).read_text().startswith("spark:")


@pytest.mark.parametrize(
    ("arguments", "message"), [([], "An argument is missing"), (["drvier"], "drvier is not installed in this image")]
)
def test_nonsense_is_told(arguments: list[str], message: str) -> None:
    answer = subprocess.run([sys.executable, PATH, *arguments], capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert message in answer.stderr


def test_it_becomes_the_program(tmp_path: Path) -> None:
    home = tmp_path / "spark"
    (home / "bin").mkdir(parents=True)
    program = home / "bin/spark-submit"
    program.write_text("#!/bin/sh\necho $$ $*\n")
    program.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, PATH, "submit", "--version"],
        env={**os.environ, "SPARK_HOME": str(home)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        told, _ = process.communicate(timeout=60)
    assert told.split() == [str(process.pid), "--version"]
