"""`odradek console` in a real browser: logins, searches, changes, hostile messages."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, expect

from odradek import BlockingAdmin, BlockingProducer, NewTopic
from odradek.testing.in_process import InProcessBroker
from odradek_testkit.clients.browser import HarmlessPage, open_browser

HOSTILE = (
    b'<script>alert("value")</script><img src="https://other.example/x.png" onerror=alert(1)>'
    b"\"'><svg onload=alert(2)>\xe2\x80\xae{{7*7}}"
)
USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";'


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a broker with the user alice."""
    config = {
        "listeners": "CLIENTS://127.0.0.1:0,BETWEEN://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,BETWEEN:PLAINTEXT",
        "inter.broker.listener.name": "BETWEEN",
        "listener.name.clients.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": USERS,
        "connection.failed.authentication.delay.ms": "0",
    }
    broker = InProcessBroker(tmp_path_factory.mktemp("guarded"), config)
    broker.start()
    try:
        yield broker.bootstrap.split(",")[0]
    finally:
        broker.close()


@pytest.fixture(scope="module")
def browser(guarded: str) -> Iterator[Browser]:
    """Chromium. It ends before the broker, because an event loop runs in this thread as long as it does."""
    with open_browser() as started:
        yield started


@contextmanager
def console(bootstrap: str, *arguments: str) -> Iterator[str]:
    """Run `odradek console` in a process of its own, and return its address."""
    command = [sys.executable, "-m", "odradek.cli.main", "console", "-b", bootstrap, "--port", "0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("console: http://127.0.0.1:"), line
        yield line.removeprefix("console: ").strip()
    finally:
        process.terminate()
        process.communicate()
    assert process.returncode == 0


def new_topic(bootstrap: str, *messages: bytes) -> str:
    name = f"shop.orders-{uuid4().hex[:6]}"
    with BlockingAdmin(bootstrap) as admin, BlockingProducer(bootstrap) as producer:
        admin.create_topics([NewTopic(name=name, partitions=1, replication_factor=1)])
        for message in messages:
            producer.send_and_wait(name, message, key=b"k", headers=[("trace", message[:50])])
    return name


def test_hostile_messages_do_nothing(odradek_broker: InProcessBroker, browser: Browser) -> None:
    topic = new_topic(odradek_broker.bootstrap, HOSTILE, b"\xff\xfe\x00" * 300_000, b"x" * 500_000)
    with console(odradek_broker.bootstrap) as url:
        visit = HarmlessPage(browser, url)
        page = visit.open(f"/topics/{topic}/messages")
        expect(page.locator("table.messages tbody tr")).to_have_count(3)
        expect(page.get_by_text('<script>alert("value")</script>').first).to_be_visible()
        expect(page.locator("table.messages img, table.messages svg, table.messages script")).to_have_count(0)
        page = visit.open(f"/topics/{topic}/messages/0/0")
        expect(page.locator("pre").last).to_contain_text("\\u202e{{7*7}}")
        for offset in (1, 2):
            page = visit.open(f"/topics/{topic}/messages/0/{offset}")
            expect(page.get_by_text("only the beginning is shown")).to_be_visible()
            with page.expect_download() as download:
                page.get_by_role("link", name="Download").last.click()
            assert Path(download.value.path()).stat().st_size == (900_000, 500_000)[offset - 1]
        visit.check()


def test_a_search_from_the_form(odradek_broker: InProcessBroker, browser: Browser) -> None:
    orders = [json.dumps({"id": number, "customer": f"c{number % 3}"}).encode() for number in range(30)]
    topic = new_topic(odradek_broker.bootstrap, *orders)
    with console(odradek_broker.bootstrap) as url:
        visit = HarmlessPage(browser, url)
        page = visit.open(f"/topics/{topic}/messages")
        expect(page.get_by_label("Offset", exact=True)).to_be_hidden()
        page.get_by_label("Start").select_option("at an offset")
        page.get_by_label("Offset", exact=True).fill("10")
        page.get_by_label("JSON path").fill("$.customer")
        page.get_by_label("equals").fill("c0")
        page.get_by_label("Messages", exact=True).fill("3")
        page.get_by_role("button", name="Search").click()
        expect(page.locator("#scanned")).to_contain_text("3 found")
        expect(page.locator("tbody tr td:nth-child(2)")).to_have_text(["12", "15", "18"])
        page.get_by_role("link", name="Continue").click()
        expect(page.locator("tbody tr td:nth-child(2)")).to_have_text(["21", "24", "27"])
        page.get_by_role("link", name="24", exact=True).click()
        expect(page.get_by_role("heading", name="Partition 0, offset 24")).to_be_visible()
        expect(page.locator("pre").last).to_contain_text('"customer": "c0"')
        visit.check()


def test_changes_from_forms(odradek_broker: InProcessBroker, browser: Browser) -> None:
    name = f"made-{uuid4().hex[:6]}"
    with console(odradek_broker.bootstrap, "--allow-changes") as url:
        visit = HarmlessPage(browser, url)
        page = visit.open("/topics")
        page.get_by_label("Name", exact=True).fill(name)
        page.get_by_label("Partitions", exact=True).fill("3")
        page.get_by_label("Properties, one per line").fill("retention.ms=60000")
        page.get_by_role("button", name="Create topic").click()
        expect(page.get_by_role("status")).to_have_text("The topic was created.")
        expect(page.locator("main table").first.locator("tbody tr")).to_have_count(3)
        page.get_by_label("Property", exact=True).fill("retention.ms")
        page.get_by_label("Value", exact=True).fill("70000")
        page.get_by_role("button", name="Set", exact=True).click()
        expect(page.get_by_role("cell", name="70000")).to_be_visible()
        page.get_by_label("Enter the name of the topic").fill(name)
        page.get_by_role("button", name="Delete the topic").click()
        expect(page.get_by_role("status")).to_have_text("The topic was deleted.")
        expect(page.get_by_role("link", name=name)).to_have_count(0)
        visit.check()


def test_logins(tmp_path: Path, guarded: str, browser: Browser) -> None:
    file = tmp_path / "console.properties"
    file.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n")
    with console(guarded, "--command-config", str(file)) as url:
        visit = HarmlessPage(browser, url)
        page = visit.open("/brokers")
        assert "/login?next=/brokers" in page.url
        for password in ("wrong", "alice-secret"):
            page.get_by_label("User").fill("alice")
            page.get_by_label("Password").fill(password)
            page.get_by_role("button", name="Log in").click()
            if password == "wrong":
                expect(page.get_by_role("alert")).to_contain_text("Login failed")
        expect(page.get_by_role("heading", name="Brokers")).to_be_visible()
        assert page.url.endswith("/brokers")
        assert page.evaluate("document.cookie") == ""
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        visit.check()
