"""The console of `odradek up` in a real browser, with a group that reads and brokers that restart."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from odradek import BlockingAdmin, BlockingConsumer, BlockingProducer, TopicPartition
from odradek_testkit.clients.browser import HarmlessPage, open_browser

from .up_process import CLUSTER, Up, is_ready, topic

pytestmark = [pytest.mark.java, pytest.mark.slow]

PATHS = (
    "/",
    "/brokers",
    "/brokers/0",
    "/topics",
    "/topics/orders",
    "/topics/orders/messages",
    "/topics/orders/messages/0/3",
    "/groups",
    "/group?id=billing",
    "/activity",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as started:
        yield started


@pytest.fixture
def running(up: Callable[..., Up]) -> Iterator[tuple[Up, str, str]]:
    """A cluster with a topic whose group has read 5 of 20 records: the process, the console, the brokers."""
    one = up()
    ready = one.until(is_ready)
    url, bootstrap = str(ready["console"]), str(ready["bootstrap"])
    assert [event["message"] for event in one.events if event["subject"] == "console"] == [url]
    with BlockingProducer(bootstrap) as producer:
        for number in range(20):
            value = json.dumps({"order": {"id": 1000 + number, "items": ["tea", "<b>cups</b>"]}, "paid": number > 3})
            producer.send_and_wait(
                "orders", value.encode(), key=b"customer-%d" % (number % 4), partition=0, headers=[("trace", b"a1")]
            )
    with BlockingConsumer(bootstrap, "orders", group_id="billing", client_id="worker-1") as consumer:
        while not consumer.assignment():
            consumer.getmany(timeout_ms=200)
        consumer.commit({TopicPartition("orders", 0): 5, TopicPartition("orders", 1): 0})
        yield one, url, bootstrap


def test_a_person_looks_at_the_cluster(running: tuple[Up, str, str], browser: Browser, tmp_path: Path) -> None:
    _, url, _ = running
    walk(HarmlessPage(browser, url))
    for dark, width in ((False, 1280), (True, 1280), (False, 390)):
        visit = HarmlessPage(browser, url, dark=dark, width=width)
        for number, path in enumerate(PATHS):
            page = visit.open(path)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            name = f"{number}-{'dark' if dark else 'light'}-{width}.png"
            assert page.screenshot(path=tmp_path / name, full_page=True)


def walk(visit: HarmlessPage) -> None:
    """From the overview to a message, and to a group."""
    page = visit.open("/")
    expect(page.get_by_role("main").get_by_role("row")).to_have_count(3)
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Topics").click()
    page.get_by_role("link", name="orders", exact=True).click()
    expect(page.get_by_role("row", name="0, 1").first).to_be_visible()
    page.get_by_role("link", name="Messages").click()
    expect(page.locator("table.messages tbody tr")).to_have_count(20)
    page.get_by_label("JSON path").fill("$.order.id")
    page.get_by_label("equals").fill("1007")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("table.messages tbody tr")).to_have_count(1)
    page.get_by_role("link", name="7", exact=True).click()
    expect(page.locator("pre").last).to_contain_text("<b>cups</b>")
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Groups").click()
    expect(page.get_by_role("row", name="billing")).to_contain_text("Stable")
    expect(page.get_by_role("row", name="billing").get_by_role("cell").last).to_have_text("15")
    page.get_by_role("link", name="billing").click()
    expect(page.get_by_role("cell", name="worker-1").first).to_be_visible()
    visit.check()


def test_a_rolling_restart_is_activity(running: tuple[Up, str, str], browser: Browser, folder: Path) -> None:
    one, url, bootstrap = running
    visit = HarmlessPage(browser, url)
    expect(visit.open("/activity").get_by_text("All brokers with replicas are running.")).to_be_visible()
    config = "spec: {brokers: {replicas: 2, config: {num.partitions: 3}}}}\n"
    manifest = folder / "manifests" / "cluster.yaml"
    manifest.write_text(CLUSTER.replace("spec: {brokers: {replicas: 2}}}\n", config) + topic(2))
    restarts = [one.until(lambda event: event.get("action") == "RestartBroker") for _ in range(2)]
    one.until(lambda event: event.get("reason") == "RolledOut")
    page = visit.open("/activity")
    for restart in restarts:
        expect(page.get_by_role("row", name=restart["message"]).first).to_be_visible()
    with BlockingAdmin(bootstrap) as admin:
        assert len(admin.describe_cluster().brokers) == 2
    one.process.send_signal(signal.SIGINT)
    one.until(lambda event: event["event"] == "stopped")
    assert one.end() == (0, "")
