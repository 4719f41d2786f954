"""The start of a broker: what it reads, what it waits for, and the arguments of `exec`."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.base.setting_definitions import parse_properties
from odradek_operator.errors import PodError
from odradek_operator.pod.addresses import Json
from odradek_operator.pod.api_reader import ApiReadError
from odradek_operator.pod.broker import broker_properties, read_secrets, read_text, write_properties
from odradek_operator.pod.identity import BrokerPod, PodListener
from odradek_operator.pod.remembered import FILE

INSIDE = PodListener(name="plain", port=9092, type="internal")
NODE_PORT = PodListener(name="out", port=9094, type="nodeport")
BALANCED = PodListener(name="lb", port=9095, type="loadbalancer")
NODE: dict[str, Any] = {
    "metadata": {"name": "a", "labels": {"zone": "z1"}},
    "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
}


def pod(*listeners: PodListener, rack_key: str | None = None) -> BrokerPod:
    return BrokerPod(
        cluster="demo",
        name="demo-kafka-0",
        namespace="events",
        node="a",
        broker_id=0,
        listeners=listeners,
        rack_key=rack_key,
    )


class Api:
    """An API with one node. Each Service has a sequence of answers; exceptions among them are raised."""

    def __init__(self, **services: list[Json | ApiReadError]) -> None:
        self.services: dict[str, Iterator[Json | ApiReadError]] = {
            name.replace("_", "-"): iter(answers) for name, answers in services.items()
        }

    def node(self, name: str) -> Json:
        assert name == "a"
        return NODE

    def service(self, namespace: str, name: str) -> Json:
        assert namespace == "events"
        answer = next(self.services[name])
        if isinstance(answer, ApiReadError):
            raise answer
        return answer


class Time:
    """A clock that only pauses advance."""

    def __init__(self) -> None:
        self.now = 0.0

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def clock(self) -> float:
        return self.now


class Refusing:
    """An API server that answers every request in the same way."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def node(self, name: str) -> Json:
        raise ApiReadError(self.reason)

    def service(self, namespace: str, name: str) -> Json:
        raise ApiReadError(self.reason)


def no_pause(_: float) -> None:
    """Make pauses return at once."""


def no_api() -> Api:
    raise AssertionError("nothing has to be read")


def test_internal_listeners_need_no_api() -> None:
    pairs = parse_properties(broker_properties("a=b\n", pod(INSIDE), no_api))
    assert pairs["advertised.listeners"].endswith("PLAIN://demo-kafka-0.demo-kafka-brokers.events.svc:9092")
    assert "broker.rack" not in pairs


def test_rack_and_node_port_are_read_from_node_and_service() -> None:
    service = {"spec": {"ports": [{"port": 9094, "nodePort": 31_000}]}}
    api = Api(demo_kafka_out_0=[ApiReadError("it does not exist"), service])
    text = broker_properties("", pod(INSIDE, NODE_PORT, rack_key="zone"), lambda: api, pause=no_pause)
    pairs = parse_properties(text)
    assert pairs["broker.rack"] == "z1"
    assert pairs["advertised.listeners"].endswith(",OUT://10.0.0.1:31000")


def test_a_load_balancer_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    pending: Json = {"metadata": {"name": "s"}, "status": {"loadBalancer": {}}}
    ready: Json = {"status": {"loadBalancer": {"ingress": [{"hostname": "lb.example"}]}}}
    pauses: list[float] = []
    api = Api(demo_kafka_lb_0=[pending] * 40 + [ready])
    text = broker_properties("", pod(BALANCED), lambda: api, pause=pauses.append)
    assert parse_properties(text)["advertised.listeners"].endswith(",LB://lb.example:9095")
    assert len(pauses) == 40
    messages = [record for record in caplog.records if "load balancer" in record.getMessage()]
    assert len(messages) == 2, "logged at once, and then once a minute"


SERVICE: dict[str, Any] = {"spec": {"ports": [{"port": 9094, "nodePort": 31_000}]}}
BALANCER: dict[str, Any] = {"status": {"loadBalancer": {"ingress": [{"hostname": "lb.example"}]}}}


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """Return the root directory of a data volume."""
    return tmp_path / "data-0"


def start(volume: Path, which: BrokerPod, api: Any, seconds: float = 20.0) -> tuple[dict[str, str], float]:
    """Start a broker. Return its final properties and the seconds that it waited."""
    time = Time()
    volume.mkdir(exist_ok=True)
    text = broker_properties(
        f"log.dirs={volume}/kafka-log\n", which, lambda: api, api_seconds=seconds, pause=time.pause, clock=time.clock
    )
    return dict(parse_properties(text)), time.now


@pytest.mark.parametrize("reason", ["it answers 401 Unauthorized", "it answers 403 Forbidden", "it cannot be reached"])
@pytest.mark.parametrize("seconds", [0.0, 20.0, 60.0])
def test_a_restart_that_the_api_server_refuses_uses_the_last_answers(
    volume: Path, reason: str, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    which = pod(INSIDE, NODE_PORT, BALANCED, rack_key="zone")
    before, _ = start(volume, which, Api(demo_kafka_out_0=[SERVICE], demo_kafka_lb_0=[BALANCER]))

    after, waited = start(volume, which, Refusing(reason), seconds)

    assert after == before
    assert after["broker.rack"] == "z1"
    assert waited <= seconds
    warnings = [
        record.getMessage() for record in caplog.records if "starting with its last answer" in record.getMessage()
    ]
    assert len(warnings) == 3
    assert reason in warnings[0] and '"zone": "z1"' in warnings[0] and "saved at 20" in warnings[0]


def test_a_first_start_that_the_api_server_refuses_fails_and_saves_nothing(volume: Path) -> None:
    with pytest.raises(
        PodError, match="node a could not be read from the API server for 120 s: it answers 403 Forbidden"
    ):
        start(volume, pod(NODE_PORT, rack_key="zone"), Refusing("it answers 403 Forbidden"))
    assert list(volume.iterdir()) == []


def test_rack_and_address_of_another_node_are_not_used(volume: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    which = pod(INSIDE, BALANCED, rack_key="zone")
    start(volume, which, Api(demo_kafka_lb_0=[BALANCER]))
    saved = (volume / FILE).read_bytes()
    with pytest.raises(PodError, match="node b could not be read from the API server for 120 s"):
        start(volume, replace(which, node="b"), Refusing("it answers 403 Forbidden"))
    assert "are those of node a, but this pod runs on b" in caplog.text
    assert (volume / FILE).read_bytes() == saved
    # Answers that do not depend on the node are used on every node.
    properties, _ = start(volume, replace(which, node="b", rack_key=None), Refusing("it answers 403 Forbidden"))
    assert properties["advertised.listeners"].endswith(",LB://lb.example:9095")


def test_a_refused_answer_does_not_replace_a_good_one(volume: Path) -> None:
    which = pod(NODE_PORT, BALANCED, rack_key="zone")
    start(volume, which, Api(demo_kafka_out_0=[SERVICE], demo_kafka_lb_0=[BALANCER]))
    changed = {"spec": {"ports": [{"port": 9094, "nodePort": 32_000}]}}
    refused = ApiReadError("it answers 404 Not Found")
    start(volume, which, Api(demo_kafka_out_0=[changed], demo_kafka_lb_0=[refused] * 9), seconds=1.0)
    properties, _ = start(volume, which, Refusing("it answers 500"))
    assert properties["advertised.listeners"].endswith("OUT://10.0.0.1:32000,LB://lb.example:9095")


def test_answers_of_another_pod_and_broken_files_are_not_used(volume: Path, caplog: pytest.LogCaptureFixture) -> None:
    which = pod(NODE_PORT)
    start(volume, which, Api(demo_kafka_out_0=[SERVICE]))
    other = replace(which, name="other-kafka-0", cluster="other")
    with pytest.raises(PodError, match="120 s"):
        start(volume, other, Refusing("it answers 403 Forbidden"))
    assert "is for another pod than events/other-kafka-0" in caplog.text
    (volume / FILE).write_text("{")
    with pytest.raises(PodError, match="120 s"):
        start(volume, which, Refusing("it answers 403 Forbidden"))
    assert "cannot be read and is not used" in caplog.text


def test_answers_are_saved_beside_the_log_directories_of_all_volumes(tmp_path: Path) -> None:
    roots = [tmp_path / "data-0", tmp_path / "data-1"]
    for root in roots:
        root.mkdir()
    text = f"log.dirs={roots[0]}/kafka-log,{roots[1]}/kafka-log\n"
    broker_properties(text, pod(NODE_PORT), lambda: Api(demo_kafka_out_0=[SERVICE]), pause=no_pause)
    assert [[path.name for path in root.iterdir()] for root in roots] == [[FILE], [FILE]]
    roots[0].joinpath(FILE).unlink()
    roots[0].rmdir()
    refusing = Refusing("it cannot be reached")
    found = broker_properties(text, pod(NODE_PORT), lambda: refusing, api_seconds=0, pause=no_pause)
    assert "OUT://10.0.0.1:31000" in found, "one volume is enough"


def test_printing_the_properties_saves_nothing(volume: Path) -> None:
    volume.mkdir()
    text = f"log.dirs={volume}/kafka-log\n"
    broker_properties(text, pod(NODE_PORT), lambda: Api(demo_kafka_out_0=[SERVICE]), remembers=False)
    assert list(volume.iterdir()) == []


def test_a_node_without_the_label_is_an_error() -> None:
    with pytest.raises(PodError, match="no label other"):
        broker_properties("", pod(INSIDE, rack_key="other"), Api, pause=no_pause)


def test_files_that_cannot_be_read_or_written_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    with pytest.raises(PodError, match="cannot be read: No such file"):
        read_text(path)
    path.write_bytes(b"\xff")
    with pytest.raises(PodError, match="not UTF-8"):
        read_text(path)
    path.chmod(0o644)
    write_properties(path, "a=b\n")
    assert read_text(path) == "a=b\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(PodError, match="cannot be written"):
        write_properties(tmp_path / "none/server.properties", "")


PROGRAM = """
import os, signal, sys
from pathlib import Path
from odradek_operator.pod import broker
sys.executable = sys.argv[1]
broker.end_on_signals()
broker.become_broker(Path("/x/server.properties"), sys.argv[2], {"GREETING": "hello"})
"""

FAKE_BROKER = f"""#!{sys.executable}
import os, signal, sys
blocked = sorted(number.name for number in signal.pthread_sigmask(signal.SIG_BLOCK, []))
print(sys.argv[1:], os.environ["GREETING"], blocked)
"""


@pytest.mark.parametrize(("text", "blocked"), [("", ["SIGINT", "SIGTERM"]), ("process.supervision.enable=false\n", [])])
def test_the_exec_of_the_broker_loses_no_signal(tmp_path: Path, text: str, blocked: list[str]) -> None:
    command = tmp_path / "odradek"
    command.write_text(FAKE_BROKER)
    command.chmod(0o755)
    program = [sys.executable, "-c", PROGRAM, str(tmp_path / "python3"), text]
    answer = subprocess.run(program, capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.strip() == f"['broker', '/x/server.properties'] hello {blocked}"


def test_sigterm_ends_a_pod_that_still_waits() -> None:
    program = (
        "import os, signal\nfrom odradek_operator.pod.broker import end_on_signals\n"
        "end_on_signals()\nos.kill(os.getpid(), signal.SIGTERM)\nsignal.pause()\n"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=60)
    assert answer.returncode == 128 + signal.SIGTERM


def test_secrets_are_read_in_the_order_of_the_resource(tmp_path: Path) -> None:
    for number in (0, 2, 10):
        data = tmp_path / str(number) / "..data"
        data.mkdir(parents=True)
        (data / "zookeeper.ssl.keystore.password").write_text(f"secret {number}\n")
        (data.parent / "zookeeper.ssl.keystore.password").symlink_to("..data/zookeeper.ssl.keystore.password")
    (tmp_path / "2" / "only.in.this").write_text(" spaces stay ")
    assert read_secrets(tmp_path) == {"zookeeper.ssl.keystore.password": "secret 10", "only.in.this": " spaces stay "}
    assert read_secrets(tmp_path / "none") == {}
