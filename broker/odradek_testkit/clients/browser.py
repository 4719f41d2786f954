"""A real browser for tests of the console: the Chromium of the machine, without a window.

Every page must be harmless: no script error, no violation of the Content-Security-Policy, no dialog, and no request to
anything but the console.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """Return the path of Chromium. Raises `AssertionError` with what to do if there is none."""
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    assert path is not None, "Chromium is needed by the tests of the console: apt-get install chromium"
    return path


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start Chromium, and end it with the block."""
    # Chromium's sandbox does not work for root, as whom containers of continuous integration run.
    arguments = ["--no-sandbox", "--disable-dev-shm-usage"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=arguments)
        try:
            yield browser
        finally:
            browser.close()


class HarmlessPage:
    """A page of one browser profile. `check` raises `AssertionError` if anything happened that must not."""

    def __init__(self, browser: Browser, url: str, *, dark: bool = False, width: int = 1280) -> None:
        """`url`: address of the console."""
        context = browser.new_context(
            base_url=url, color_scheme="dark" if dark else "light", viewport={"width": width, "height": 900}
        )
        self.page: Page = context.new_page()
        self._host = urlsplit(url).netloc
        self._harm: list[str] = []
        self.page.on("pageerror", lambda error: self._harm.append(f"script error: {error}"))
        self.page.on("console", lambda line: self._note(line.type, line.text))
        self.page.on("dialog", lambda dialog: self._harm.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self._requested(request.url))

    def _note(self, kind: str, text: str) -> None:
        # The browser also writes about pages with an error status, which tests open on purpose.
        if kind in ("error", "warning") and "Failed to load resource" not in text:
            self._harm.append(f"{kind}: {text}")

    def _requested(self, url: str) -> None:
        if urlsplit(url).netloc != self._host:
            self._harm.append(f"request to {url}")

    def open(self, path: str) -> Page:
        """Load a page, and check it."""
        self.page.goto(path)
        self.check()
        return self.page

    def check(self) -> None:
        """Raise `AssertionError` if the page did harm, or is wider than its window."""
        assert self._harm == []
        wide = self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        assert not wide, f"{self.page.url} must be scrolled sideways"
