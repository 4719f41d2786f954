"""The console with a real broker, by HTTP: pages, searches, changes, logins and rights."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from odradek import (
    AclBinding,
    AclOperation,
    AclPermission,
    AclRule,
    Admin,
    ConfigResource,
    Consumer,
    NewTopic,
    PatternType,
    Principal,
    Producer,
    ResourcePattern,
    ResourceType,
    ScramPassword,
    TopicPartition,
)
from odradek.base.errors import ConfigError
from odradek.console.console_server import ConsoleServer
from odradek.console.console_settings import ConsoleSettings, ScanLimits
from odradek.console.web_guard import COOKIE
from odradek.testing.free_ports import free_ports
from odradek.testing.in_process import InProcessBroker
from odradek_testkit.loop import ManualClock
from odradek_testkit.security.certificates import Authority, key_pem, pem
from odradek_testkit.security.issuers import Issuer, key_set

HOSTILE = b'<script>alert(1)</script><img src=x onerror="alert(2)">'


class Browser:
    """An HTTP client that keeps cookies and does not follow redirects."""

    def __init__(self, http: aiohttp.ClientSession, server: ConsoleServer) -> None:
        self.http = http
        self.url = server.url.rstrip("/")

    async def get(self, path: str, status: int = 200, **options: Any) -> str:
        async with self.http.get(self.url + path, allow_redirects=False, **options) as response:
            text = await response.text(errors="replace")
            assert response.status == status, text
            return text

    async def json(self, path: str, status: int = 200) -> Any:
        return json.loads(await self.get(f"/api{path}", status))

    async def post(self, path: str, page: str, status: int = 303, **fields: str) -> str:
        """Send the form of a page with its token. Returns where it leads, or the text of the error."""
        token = re.search(r'name="form_token" value="([^"]+)"', await self.get(page))
        assert token is not None, f"{page} has no form"
        return await self.send(path, {"form_token": token[1], **fields}, status)

    async def send(self, path: str, fields: dict[str, str], status: int, **headers: str) -> str:
        headers = {"Origin": self.url, **headers}
        async with self.http.post(self.url + path, data=fields, headers=headers, allow_redirects=False) as response:
            text = await response.text()
            assert response.status == status, text
            return response.headers.get("Location", text)


@asynccontextmanager
async def console(bootstrap: str, **settings: Any) -> AsyncIterator[Browser]:
    properties = {"bootstrap.servers": bootstrap, **settings.pop("properties", {})}
    clock = settings.pop("clock", None)
    server = ConsoleServer(ConsoleSettings(properties=properties, port=0, **settings), clock=clock)
    await server.start()
    try:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
            yield Browser(http, server)
    finally:
        await server.close()


async def filled_topic(bootstrap: str, partitions: int = 2, records: int = 20) -> str:
    """Create a topic. Record N has the key `kN`, JSON as its value, a header, and the time N seconds after 1970, so
    retention is off."""
    name = f"orders-{uuid4().hex[:8]}"
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        kept = (("retention.ms", "-1"),)
        await admin.create_topics([NewTopic(name=name, partitions=partitions, replication_factor=1, configs=kept)])
        for number in range(records):
            await producer.send(
                name,
                json.dumps({"id": number, "even": number % 2 == 0}).encode(),
                key=b"k%d" % number,
                partition=number % partitions,
                timestamp_ms=1000 * number,
                headers=[("trace", b"t%d" % number)],
            )
        await producer.flush()
    return name


def values(found: Any) -> list[int]:
    return [json.loads(record["value"]["text"])["id"] for record in found["records"]]


async def test_every_page_shows_the_cluster(odradek_broker: InProcessBroker) -> None:
    bootstrap = odradek_broker.bootstrap
    topic, group = await filled_topic(bootstrap), f"billing/{uuid4().hex[:8]}"
    async with console(bootstrap) as browser, Consumer(bootstrap, topic, group_id=group) as consumer:
        while not consumer.assignment():
            await consumer.getmany(timeout_ms=100)
        await consumer.commit({TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 10})

        overview = await browser.json("/overview")
        assert [broker["id"] for broker in overview["brokers"]] == [0] and overview["controller"] == 0
        assert "no reassign" not in await browser.get("/")
        rows = (await browser.json(f"/topics?q={topic.upper()}"))["topics"]
        assert [(row["name"], row["partitions"], row["size_bytes"] > 0) for row in rows] == [(topic, 2, True)]
        partitions = (await browser.json(f"/topics/{topic}"))["partitions"]
        assert [(row["leader"], row["isr"], row["first_offset"], row["end_offset"]) for row in partitions] == [
            (0, [0], 0, 10)
        ] * 2
        found = await browser.json(f"/group?id={group.replace('/', '%2F')}")
        assert (found["state"], found["lag"], len(found["members"])) == ("Stable", 6, 1)
        assert [(row["partition"], row["lag"]) for row in found["partitions"]] == [(0, 6), (1, 0)]
        groups = await browser.json(f"/groups?q={group.replace('/', '%2F')}")
        assert [(row["id"], row["members"], row["lag"]) for row in groups["groups"]] == [(group, 1, 6)]
        for path in ("/brokers", "/brokers/0", "/topics", f"/topics/{topic}", "/groups", "/activity"):
            assert "<h1>" in await browser.get(path)
        for path in ("/topics/none", "/group?id=none", "/brokers/77", f"/topics/{topic}/messages/0/99", "/none"):
            assert "Not found" in await browser.get(path, 404)
            assert (await browser.json(path, 404))["error"]


async def test_an_idle_cluster_has_no_activity(odradek_broker: InProcessBroker) -> None:
    async with console(odradek_broker.bootstrap) as browser:
        found = await browser.json("/activity")
    assert (found["missing_brokers"], found["reassignments"], found["events"]) == ([], [], [])


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ("", list(range(19, -1, -1))),
        ("limit=3", [19, 18, 17]),
        ("limit=3&path=$.even&equals=true", [18, 16, 14]),
        ("partition=1&limit=2", [19, 17]),
        ("from=oldest&partition=0&limit=3", [0, 2, 4]),
        ("from=offset&offset=8&partition=1", [17, 19]),
        ("from=time&time=1970-01-01T00:00:17", [18, 17, 19]),
        ("key=k7", [7]),
        ("value=%22id%22:%2012", [12]),
        ("header=trace=t5", [5]),
        ("key=k1&path=id&equals=13", [13]),
        ("key=nobody", []),
        ("from=time&time=1971-01-01", []),
        ("from=oldest&partition=0&limit=1&isolation=read_committed", [0]),
    ],
)
async def test_searches(odradek_broker: InProcessBroker, search: str, expected: list[int]) -> None:
    topic = await filled_topic(odradek_broker.bootstrap)
    async with console(odradek_broker.bootstrap) as browser:
        found = await browser.json(f"/topics/{topic}/messages?{search}")
        page = await browser.get(f"/topics/{topic}/messages?{search}")
    assert sorted(values(found)) == sorted(expected)
    if "time=" not in search:
        assert values(found) == expected
    assert f"{len(expected)} found" in page


async def test_a_search_that_was_stopped_continues(odradek_broker: InProcessBroker) -> None:
    topic = await filled_topic(odradek_broker.bootstrap, partitions=3, records=100)
    async with console(odradek_broker.bootstrap, limits=ScanLimits(records=30)) as browser:
        seen, search, stops = [], "from=oldest&limit=7&path=$.even&equals=true", set()
        while True:
            found = await browser.json(f"/topics/{topic}/messages?{search}")
            seen += values(found)
            assert found["scanned"] <= 30
            stops.add(found["stopped"])
            if not found["positions"]:
                break
            search = f"from=positions&positions={found['positions']}&limit=20&path=$.even&equals=true"
    assert sorted(seen) == list(range(0, 100, 2))
    assert stops == {"results", "records", "end"}


@pytest.mark.parametrize(("limits", "stopped"), [(ScanLimits(time_ms=0), "time"), (ScanLimits(size_bytes=1), "bytes")])
async def test_other_limits_stop_a_search(odradek_broker: InProcessBroker, limits: ScanLimits, stopped: str) -> None:
    topic = await filled_topic(odradek_broker.bootstrap)
    async with console(odradek_broker.bootstrap, limits=limits) as browser:
        assert (await browser.json(f"/topics/{topic}/messages?from=oldest"))["stopped"] == stopped


async def test_a_search_is_cancelled_when_the_browser_goes_away(
    odradek_broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await filled_topic(odradek_broker.bootstrap)
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def endless(*_arguments: object, **_keywords: object) -> dict[Any, Any]:
        began.set()
        try:
            return await asyncio.Event().wait() and {}
        finally:
            cancelled.set()

    monkeypatch.setattr(Consumer, "getmany", endless)
    async with console(odradek_broker.bootstrap) as browser:
        search = asyncio.ensure_future(browser.get(f"/topics/{topic}/messages"))
        await began.wait()
        search.cancel()
        async with asyncio.timeout(20):
            await cancelled.wait()


async def test_a_search_passes_over_aborted_transactions(odradek_broker: InProcessBroker) -> None:
    bootstrap, topic = odradek_broker.bootstrap, await filled_topic(odradek_broker.bootstrap, partitions=1, records=3)
    async with Producer(bootstrap, transactional_id=f"tx-{topic}") as producer:
        await producer.init_transactions()
        producer.begin_transaction()
        await producer.send_and_wait(topic, b'{"id": 90}')
        await producer.abort_transaction()
    async with console(bootstrap) as browser:
        for isolation, expected in (("read_committed", [0, 1, 2]), ("", [0, 1, 2, 90])):
            found = await browser.json(f"/topics/{topic}/messages?from=oldest&isolation={isolation}")
            assert (values(found), found["stopped"], found["positions"]) == (expected, "end", "")


async def test_hostile_messages_are_harmless(odradek_broker: InProcessBroker) -> None:
    bootstrap, topic = odradek_broker.bootstrap, f"hostile-{uuid4().hex[:8]}"
    huge = b"\xff\x00" * 400_000
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        await admin.create_topics([NewTopic(name=topic, partitions=1, replication_factor=1)])
        await producer.send_and_wait(topic, HOSTILE, key=HOSTILE, headers=[(HOSTILE.decode(), HOSTILE), ("n", None)])
        await producer.send_and_wait(topic, huge)
    async with console(bootstrap) as browser:
        for path in (f"/topics/{topic}/messages", f"/topics/{topic}/messages/0/0"):
            page = await browser.get(path)
            assert "<script>alert" not in page and "<img" not in page
            assert "&lt;script&gt;alert(1)" in page
            assert len(page) < 30_000
        assert "ff 00" in (page := await browser.get(f"/topics/{topic}/messages/0/1")) and len(page) < 2_000_000
        async with browser.http.get(f"{browser.url}/topics/{topic}/messages/0/1/value") as response:
            assert await response.read() == huge
            assert response.content_type == "application/octet-stream"
            assert response.headers["Content-Disposition"].startswith("attachment")
            assert response.headers["X-Content-Type-Options"] == "nosniff"


async def test_headers_and_hosts(odradek_broker: InProcessBroker) -> None:
    async with console(odradek_broker.bootstrap, host_names=("console.example",)) as browser:
        async with browser.http.get(browser.url) as response:
            policy = response.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
            assert response.headers["Cache-Control"] == "no-store"
            text = await response.text()
            assert not re.search(r"<script(?! src)|\son\w+=|style=", text)
        for host in ("console.example:80", "localhost", "127.0.0.1", "[::1]:8080"):
            await browser.get("/", headers={"Host": host})
        for host in ("other.example", "127.0.0.1.other.example", "localhost.other.example"):
            assert "--host-name" in await browser.get("/", 421, headers={"Host": host})
        assert await browser.get("/healthz") == "ok\n"


async def test_a_console_is_read_only_by_default(odradek_broker: InProcessBroker) -> None:
    async with console(odradek_broker.bootstrap) as browser:
        page = await browser.get("/topics")
        assert '<form class="fields"' not in page and "read-only" in page
    async with console(odradek_broker.bootstrap, allow_changes=True) as other:
        token = re.search(r'name="form_token" value="([^"]+)"', await other.get("/topics"))
    assert token is not None
    async with console(odradek_broker.bootstrap) as browser:
        await browser.send("/topics", {"form_token": token[1], "name": "no"}, 403)


async def test_changes(odradek_broker: InProcessBroker) -> None:
    bootstrap, name, group = odradek_broker.bootstrap, f"new-{uuid4().hex[:8]}", f"g-{uuid4().hex[:8]}"
    async with console(bootstrap, allow_changes=True) as browser, Admin(bootstrap) as admin:
        configs = "retention.ms=1000\ncleanup.policy=delete"
        there = await browser.post("/topics", "/topics", name=name, partitions="2", replicas="1", configs=configs)
        assert "The topic was created." in await browser.get(there)
        await browser.post(f"/topics/{name}/config", there, name="retention.ms", value="2000", operation="set")
        await browser.post(f"/topics/{name}/config", there, name="cleanup.policy", operation="reset")
        resource = ConfigResource.topic(name)
        found = (await admin.describe_configs([resource]))[resource]
        assert found["retention.ms"].value == "2000"
        assert found["cleanup.policy"].source.name == "DEFAULT_CONFIG"
        text = await browser.post(f"/topics/{name}/config", there, 400, name="retention.ms", value="x", operation="set")
        assert "retention.ms" in text

        # The records are old, so that retention could delete them at once.
        await browser.post(f"/topics/{name}/config", there, name="retention.ms", value="-1", operation="set")
        async with Producer(bootstrap) as producer:
            for number in range(10):
                await producer.send_and_wait(name, b"x", partition=0, timestamp_ms=1000 + number)
        await admin.alter_group_offsets(group, {TopicPartition(name, 0): 10, TopicPartition(name, 1): 0})
        page = f"/group?id={group}"
        for to, more, expected in (
            ("earliest", {}, 0),
            ("latest", {}, 10),
            ("offset", {"offset": "4", "partition": "0"}, 4),
            ("offset", {"offset": "400"}, 10),
            ("time", {"time": "1007"}, 7),
        ):
            await browser.post("/group/offsets", page, id=group, topic=name, to=to, **more)
            assert (await admin.group_offsets(group))[TopicPartition(name, 0)].offset == expected
        async with Consumer(bootstrap, name, group_id=group) as consumer:
            while not consumer.assignment():
                await consumer.getmany(timeout_ms=100)
            assert await browser.post("/group/offsets", page, 400, id=group, topic=name, to="earliest")

        assert "enter its name" in await browser.post(f"/topics/{name}/delete", f"/topics/{name}", 400, confirm="x")
        there = await browser.post(f"/topics/{name}/delete", f"/topics/{name}", confirm=name)
        assert "The topic was deleted." in await browser.get(there)
        assert name not in await admin.list_topics()


async def test_forms_of_other_sites_are_refused(odradek_broker: InProcessBroker) -> None:
    async with console(odradek_broker.bootstrap, allow_changes=True) as browser:
        token = re.search(r'name="form_token" value="([^"]+)"', await browser.get("/topics"))
        assert token is not None
        fields = {"form_token": token[1], "name": "forged"}
        for origin in ("http://other.example", "null", "", f"{browser.url}.other.example"):
            assert "was not sent by a page" in await browser.send("/topics", fields, 403, Origin=origin)
        for wrong in ("", "x", "ü"):
            assert "too old" in await browser.send("/topics", {**fields, "form_token": wrong}, 403)
        await browser.get("/topics/forged", 404)


# Clusters with logins

USERS = "org.apache.kafka.common.security.plain.PlainLoginModule required " + " ".join(
    f'user_{name}="{name}-secret"' for name in ("admin", "alice", "bob")
)
ISSUER = Issuer()
SASL = {"security.protocol": "SASL_PLAINTEXT"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a broker with the users admin, alice and bob and an authorizer. Admin is a super user."""
    folder = tmp_path_factory.mktemp("guarded")
    keys = tmp_path_factory.mktemp("issuer") / "keys.json"
    keys.write_bytes(key_set(ISSUER.jwk()))
    config = {
        "listeners": "CLIENTS://127.0.0.1:0,BETWEEN://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,BETWEEN:PLAINTEXT",
        "inter.broker.listener.name": "BETWEEN",
        "listener.name.clients.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.clients.sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "listener.name.clients.plain.sasl.jaas.config": f"{USERS};",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
        "connection.failed.authentication.delay.ms": "0",
    }
    broker = InProcessBroker(folder, config)
    broker.start()
    try:
        yield broker.bootstrap.split(",")[0]
    finally:
        broker.close()


def as_admin(address: str) -> dict[str, str]:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="admin-secret";'
    return {
        "bootstrap_servers": address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_jaas_config": jaas,
    }


async def log_in(browser: Browser, user: str, secret: str | None = None, status: int = 303, there: str = "/") -> str:
    secret = f"{user}-secret" if secret is None else secret
    return await browser.post(
        "/login", "/login", status, mechanism="PLAIN", user=user, secret=secret, next=there
    )  # fmt: skip


def allow(name: str, kind: ResourceType, user: str, operation: AclOperation) -> AclBinding:
    rule = AclRule(principal=Principal("User", user), permission=AclPermission.ALLOW, host="*", operation=operation)
    return AclBinding(ResourcePattern(kind, name, PatternType.LITERAL), rule)


async def test_visitors_log_in_and_see_what_their_user_may_see(guarded: str) -> None:
    seen, hidden = f"seen-{uuid4().hex[:8]}", f"hidden-{uuid4().hex[:8]}"
    async with Admin(**as_admin(guarded)) as admin, Producer(**as_admin(guarded)) as producer:  # type: ignore[arg-type]
        for name in (seen, hidden):
            await admin.create_topics([NewTopic(name=name, partitions=1, replication_factor=1)])
            await producer.send_and_wait(name, b'{"id": 1}')
        await admin.create_acls([allow(seen, ResourceType.TOPIC, "alice", AclOperation.DESCRIBE)])
        async with console(guarded, properties=SASL, allow_changes=True) as browser:
            assert (await browser.json("/topics", 401))["error"]
            assert "Login failed" in await log_in(browser, "alice", "wrong", 403)
            assert "Login failed" in await log_in(browser, "nobody", "x", 403)
            assert COOKIE not in [cookie.key for cookie in browser.http.cookie_jar]
            assert await log_in(browser, "alice", there=f"/topics/{seen}") == f"/topics/{seen}"
            (cookie,) = browser.http.cookie_jar
            assert cookie["httponly"] and cookie["samesite"] == "Lax" and len(cookie.value) >= 43

            found = await browser.json("/topics")
            assert [row["name"] for row in found["topics"]] == [seen]
            assert any(note.startswith("Sizes: this user is not allowed") for note in found["notes"])
            assert hidden not in await browser.get("/topics")
            await browser.get(f"/topics/{hidden}", 403)
            assert "Not allowed" in await browser.get(f"/topics/{seen}/messages", 403)
            assert (await browser.json("/groups"))["groups"] == []
            await browser.post("/topics", "/topics", 403, name="forbidden")

            await admin.create_acls([allow(seen, ResourceType.TOPIC, "alice", AclOperation.READ)])
            assert values(await browser.json(f"/topics/{seen}/messages")) == [1]

            await browser.post("/logout", "/topics")
            assert (await browser.get("/topics", 303)) is not None
            assert await log_in(browser, "admin") == "/"
            names = {row["name"] for row in (await browser.json("/topics"))["topics"]}
            assert {seen, hidden} <= names


async def test_users_with_scram_and_with_tokens_log_in(guarded: str) -> None:
    carol = {"user": "carol", "secret": 'a"b\\c ü'}
    async with console(guarded, properties=SASL) as browser:
        async with Admin(**as_admin(guarded)) as admin:  # type: ignore[arg-type]
            await admin.alter_user_scram_credentials(passwords=[ScramPassword(user="carol", password=carol["secret"])])
        page = await browser.get("/login")
        assert all(name in page for name in ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER"))
        # The broker learns of a new user by a notification.
        async with asyncio.timeout(20):
            while not await logged_in(browser, mechanism="SCRAM-SHA-512", **carol):
                pass
        assert "carol" in await browser.get("/")
        assert not await logged_in(browser, mechanism="SCRAM-SHA-256", **carol)
        assert not await logged_in(browser, mechanism="OAUTHBEARER", secret=ISSUER.token(exp=1000))
        assert await logged_in(browser, mechanism="OAUTHBEARER", secret=ISSUER.token())
        assert "bearer of a token" in await browser.get("/")


async def logged_in(browser: Browser, **fields: str) -> bool:
    """Send the login form. Returns whether the login succeeded."""
    token = re.search(r'name="form_token" value="([^"]+)"', await browser.get("/login"))
    assert token is not None
    async with browser.http.post(
        f"{browser.url}/login",
        data={"form_token": token[1], **fields},
        headers={"Origin": browser.url},
        allow_redirects=False,
    ) as response:
        return response.status == 303


async def test_sessions_are_separate_and_end(guarded: str) -> None:
    clock = ManualClock()
    async with console(guarded, properties=SASL, idle_ms=10_000, session_ms=25_000, clock=clock) as browser:
        await log_in(browser, "admin")
        (cookie,) = browser.http.cookie_jar
        guessed = {"Cookie": f"{COOKIE}={cookie.value[:-1]}"}
        async with aiohttp.request("GET", f"{browser.url}/api/overview", headers=guessed) as response:
            assert response.status == 401
        for _ in range(2):
            clock.advance(9_000)
            await browser.json("/overview")
        clock.advance(9_000)
        await browser.json("/overview", 401)
        await log_in(browser, "bob")
        await browser.json("/overview")
        clock.advance(10_000)
        await browser.json("/overview", 401)


async def test_the_token_of_a_form_belongs_to_its_session(guarded: str) -> None:
    async with console(guarded, properties=SASL, allow_changes=True) as browser:
        login = re.search(r'name="form_token" value="([^"]+)"', await browser.get("/login"))
        assert login is not None
        await log_in(browser, "admin")
        assert "too old" in await browser.send("/topics", {"form_token": login[1], "name": "forged"}, 403)


async def test_https_and_secure_cookies(guarded: str, tmp_path: Path) -> None:
    authority = Authority.root()
    certificate = authority.issue("console", hosts=("127.0.0.1",))
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_text(certificate.chain_pem)
    key.write_text(key_pem(certificate.key))
    async with console(guarded, properties=SASL, certificate=chain, key=key) as browser:
        trust = ssl.create_default_context(cadata=pem(authority.certificate))
        async with browser.http.get(f"{browser.url}/login", ssl=trust) as response:
            assert response.status == 200 and "Strict-Transport-Security" in response.headers
            token = re.search(r'name="form_token" value="([^"]+)"', await response.text())
        assert token is not None
        fields = {"form_token": token[1], "mechanism": "PLAIN", "user": "admin", "secret": "admin-secret"}
        headers = {"Origin": browser.url}
        async with browser.http.post(
            f"{browser.url}/login", data=fields, headers=headers, ssl=trust, allow_redirects=False
        ) as response:
            assert response.status == 303
            assert "Secure" in response.headers["Set-Cookie"]


async def test_addresses_and_certificates_that_cannot_be_used(odradek_broker: InProcessBroker, tmp_path: Path) -> None:
    properties = {"bootstrap.servers": odradek_broker.bootstrap}
    broken = tmp_path / "broken.pem"
    broken.write_text("nothing")
    with pytest.raises(ConfigError, match=r"broken\.pem cannot be used"):
        await ConsoleServer(ConsoleSettings(properties=properties, port=0, certificate=broken)).start()
    async with console(odradek_broker.bootstrap) as browser:
        port = int(browser.url.rpartition(":")[2])
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
            await ConsoleServer(ConsoleSettings(properties=properties, port=port)).start()


async def test_a_cluster_that_does_not_answer() -> None:
    async with console(f"127.0.0.1:{free_ports(1)[0]}") as browser:
        assert "does not answer" in await browser.get("/", 503)
        await browser.get("/healthz")
