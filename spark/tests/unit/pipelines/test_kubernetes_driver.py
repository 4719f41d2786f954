"""The command of a driver in its own pod, and the template of its executors."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from odradek.base.errors import ConfigError
from pyspark_odradek.pipelines import driver_command, kubernetes_driver

POD = {"POD_NAME": "job-1", "POD_NAMESPACE": "n", "POD_IP": "10.0.0.9", "IMAGE": "i:1"}
MODULE = "pyspark_odradek.pipelines.load"


def command(folder: Path, *arguments: str, environment: dict[str, str] = POD) -> list[str]:
    parsed = kubernetes_driver.parser().parse_args(arguments)
    return kubernetes_driver.driver(parsed, environment, folder)


def settings(made: list[str]) -> dict[str, str]:
    named = [value for before, value in itertools.pairwise(made) if before == "--conf"]
    return dict(each.split("=", 1) for each in named)


def test_a_module_runs_in_this_pod(tmp_path: Path) -> None:
    made = command(tmp_path, "--executors=2", "--conf=spark.x=a=b", MODULE, "--topic", "t", "--conf", "y")
    assert made[:3] == ["spark-submit", "--deploy-mode", "client"]
    assert Path(made[-5]).name == "load.py"
    assert made[-4:] == ["--topic", "t", "--conf", "y"]
    found = settings(made[:-5])
    assert found["spark.master"] == "k8s://https://kubernetes.default.svc"
    assert (found["spark.kubernetes.driver.pod.name"], found["spark.kubernetes.namespace"]) == ("job-1", "n")
    assert (found["spark.driver.host"], found["spark.kubernetes.container.image"]) == ("10.0.0.9", "i:1")
    assert (found["spark.executor.instances"], found["spark.x"]) == ("2", "a=b")
    assert "spark.dynamicAllocation.enabled" not in found


def test_executors_are_allocated_dynamically_between_bounds(tmp_path: Path) -> None:
    found = settings(command(tmp_path, "--executors=0:4", MODULE))
    assert found["spark.dynamicAllocation.enabled"] == "true"
    assert found["spark.dynamicAllocation.shuffleTracking.enabled"] == "true"
    assert (found["spark.dynamicAllocation.minExecutors"], found["spark.dynamicAllocation.maxExecutors"]) == ("0", "4")
    assert "spark.executor.instances" not in found


def test_executors_have_the_volumes_and_are_restricted(tmp_path: Path) -> None:
    found = settings(command(tmp_path, "--volume=c:/data", "--label=job=j", "--same-node", MODULE))
    template = json.loads(Path(found["spark.kubernetes.executor.podTemplateFile"]).read_text())
    assert template["metadata"]["labels"] == {"job": "j", driver_command.DRIVER_LABEL: "job-1"}
    (container,) = template["spec"]["containers"]
    assert {"name": "claim-0", "mountPath": "/data"} in container["volumeMounts"]
    assert {"name": "claim-0", "persistentVolumeClaim": {"claimName": "c"}} in template["spec"]["volumes"]
    (term,) = template["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"] == {"matchLabels": {"job": "j"}}
    assert template["spec"]["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_given_template_is_used(tmp_path: Path) -> None:
    found = settings(command(tmp_path, "--executor-template=/etc/t.yaml", MODULE))
    assert found["spark.kubernetes.executor.podTemplateFile"] == "/etc/t.yaml"
    assert list(tmp_path.iterdir()) == []


def test_without_a_pod_the_driver_runs_the_tasks(tmp_path: Path) -> None:
    found = settings(command(tmp_path, MODULE, environment={}))
    assert found["spark.master"] == "local[*]"
    assert not any("kubernetes" in name for name in found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "an argument is missing"),
        (["--executors=x", MODULE], "--executors x is not allowed"),
        (["--executors=4:2", MODULE], "--executors 4:2 is not allowed"),
        (["--same-node", MODULE], "--same-node needs a --label"),
        (["--spec=/nowhere/p.json"], "cannot be read"),
        (["--spec=/nowhere/p.json", MODULE], "a module cannot be given too"),
        (["pyspark_odradek.nothing"], "there is no module"),
        (["nothing.at.all"], "there is no module"),
    ],
)
def test_mistakes(arguments: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        command(tmp_path, *arguments)


def test_half_a_pod_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="POD_IP is not set"):
        command(tmp_path, MODULE, environment={name: value for name, value in POD.items() if name != "POD_IP"})


def test_wrong_arguments_end_with_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        kubernetes_driver.main([])
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("error: an argument is missing")
    with pytest.raises(SystemExit):
        kubernetes_driver.main(["--volume=x", MODULE])
    assert "has no ':'" in capsys.readouterr().err


def test_a_pipeline_has_the_resources_of_its_specification(tmp_path: Path) -> None:
    spec = tmp_path / "pipeline.json"
    spec.write_text(
        json.dumps(
            {
                "name": "p",
                "bootstrapServers": "b:1",
                "source": {"topics": ["a"]},
                "target": {"path": "/t"},
                "mode": "batch",
                "checkpoint": "/c",
                "driver": {"memory": "2g"},
                "executors": {"instances": 3, "memory": "700m", "cores": 2, "cpu": "300m"},
                "sparkConf": {"spark.x": "1", "spark.y": "1"},
            }
        )
    )
    made = command(tmp_path, f"--spec={spec}", "--status-port=9405", "--conf=spark.y=2")
    assert Path(made[-3]).name == "pipeline_job.py"
    assert made[-2:] == [f"--spec={spec}", "--status-port=9405"]
    found = settings(made)
    assert (found["spark.driver.memory"], found["spark.executor.memory"]) == ("2g", "700m")
    assert (found["spark.executor.instances"], found["spark.executor.cores"]) == ("3", "2")
    assert found["spark.kubernetes.executor.request.cores"] == "300m"
    assert (found["spark.x"], found["spark.y"]) == ("1", "2")
