"""Reports of brokers about their certificates: from the broker's form to what a replacement waits for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

import pytest
from aiohttp import web

from odradek.app.logins import TlsReport as BrokerReport
from odradek.security.tls.contexts import UsedCertificates
from odradek_operator.crds.types import Cluster, Listener, ListenerAuthentication
from odradek_operator.kube.cluster import tls_reports
from odradek_operator.kube.cluster.tls_reports import TlsReport, ask_brokers, trust_between_brokers, trust_of_users
from odradek_operator.security.rotation import PodTrust

MUTUAL = Listener(name="mutual", port=9095, tls=True, authentication=ListenerAuthentication(type="tls"))
CLUSTER = Cluster(name="demo", namespace="shop", listeners=(MUTUAL,))


def document(*, issuer: str = "old", trusted: tuple[str, ...] = ("old",), users: tuple[str, ...] = ("u",)) -> object:
    """The report of a broker, as it sends it."""
    link = UsedCertificates(chain=("leaf", issuer), trusted=trusted)
    mutual = UsedCertificates(chain=("leaf", issuer), trusted=users)
    report = BrokerReport(listeners={"REPLICATIONTLS": link, "MUTUAL": mutual}, client=link)
    return json.loads(json.dumps(asdict(report)))


def test_the_report_of_a_broker_is_read() -> None:
    reports = {0: TlsReport.read(document()), 2: TlsReport.read(document(issuer="new", trusted=("new", "old")))}
    assert trust_between_brokers([0, 1, 2], reports) == (
        PodTrust("broker 0", frozenset({"old"}), "old"),
        PodTrust("broker 1"),
        PodTrust("broker 2", frozenset({"old", "new"}), "new"),
    )
    assert trust_of_users(CLUSTER, [0, 1], reports, "u") == (
        PodTrust("broker 0", frozenset({"u"}), "u"),
        PodTrust("broker 1", frozenset(), "u"),
    )


def test_both_sides_of_connections_between_brokers_count() -> None:
    mixed = TlsReport(
        listeners=TlsReport.read(document(trusted=("old", "new"))).listeners,
        client=TlsReport.read(document(issuer="new")).client,
    )
    assert trust_between_brokers([0], {0: mixed}) == (PodTrust("broker 0", frozenset({"old"}), ""),)


def test_a_broker_without_its_listeners_has_reported_nothing() -> None:
    starting = TlsReport.read({"listeners": {}, "client": None})
    assert trust_between_brokers([0], {0: starting}) == (PodTrust("broker 0"),)
    assert trust_of_users(CLUSTER, [0], {0: starting}, "u") == (PodTrust("broker 0", frozenset(), "u"),)


def test_no_broker_has_to_trust_users_without_a_listener_for_certificates() -> None:
    assert trust_of_users(Cluster(name="demo", namespace="shop"), [0], {}, "u") == ()


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"listeners": [], "client": null}', '{"listeners": {"A": 1}, "client": 1}']
)
def test_other_documents_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no report"):
        TlsReport.read(json.loads(text))


@pytest.fixture
def answers() -> dict[str, web.Response]:
    return {
        "/0": web.json_response(document()),
        "/1": web.json_response({"other": 1}),
        "/2": web.Response(text="not JSON"),
        "/3": web.Response(status=404),
    }


@pytest.fixture
async def port(answers: dict[str, web.Response]) -> Iterator[int]:  # type: ignore[misc]
    async def answer(request: web.Request) -> web.Response:
        return answers[request.path]

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    yield site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    await runner.cleanup()


async def test_only_brokers_that_answer_count(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tls_reports.url_of(CLUSTER, 1002) == "http://demo-kafka-2.demo-kafka-brokers.shop.svc:10404/tls"
    monkeypatch.setattr(
        tls_reports, "url_of", lambda _, broker: f"http://127.0.0.1:{port if broker < 9 else 1}/{broker}"
    )
    assert await ask_brokers(CLUSTER, [0, 1, 2, 3, 9]) == {0: TlsReport.read(document())}
