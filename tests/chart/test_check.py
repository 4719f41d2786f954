"""Tests the script of `helm test` with a server that answers like the API server and the operator."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import pytest

from chart_files import CHART

WELL = {"/readyz": (200, b"at work"), "/leader": (200, b"serving all namespaces: shop\n")}
SERVED = ["clusters", "clusters/status", "users", "users/status", "topics", "topics/status"]


@pytest.fixture(scope="module")
def check() -> Any:
    """The script as a module."""
    spec = spec_from_file_location("chart_check", CHART / "files/check.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def serving(answers: dict[str, tuple[int, bytes]]) -> Iterator[str]:
    """Run a server that returns these answers by path. Yield its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answers.get(self.path, (404, b"nothing here"))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
            """Print nothing during tests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def resources(names: list[str]) -> tuple[int, bytes]:
    """The API server's list of the resources of an API group."""
    return 200, json.dumps({"resources": [{"name": name} for name in names]}).encode()


def test_all_is_well(check: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with serving({"/apis/odradek.dev/v1": resources(SERVED), **WELL}) as url:
        assert check.main([url, url], 0) == 0
    output = capsys.readouterr().out
    assert "ready" in output and "serving all namespaces: shop" in output


def test_the_operator_stands_by_for_another_release(check: Any, capsys: pytest.CaptureFixture[str]) -> None:
    sentence = b"standby: the scope of all namespaces is served by odradek-system/odradek-operator-0"
    answers = {"/apis/odradek.dev/v1": resources(SERVED), **WELL, "/leader": (503, sentence)}
    with serving(answers) as url:
        assert check.main([url, url], 0) == 1
    output = capsys.readouterr().err
    assert "is ready but serves no namespace (503 standby:" in output
    assert "served by odradek-system/odradek-operator-0" in output
    assert "set different watchNamespaces" in output


def test_definitions_are_missing(check: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(WELL) as url:
        assert check.main([url, url], 0) == 1
    assert "check that the resource definitions are installed" in capsys.readouterr().err


def test_a_definition_is_older_than_the_chart(check: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with serving({"/apis/odradek.dev/v1": resources(SERVED[:5]), **WELL}) as url:
        assert check.main([url, url], 0) == 1
    assert "without topics/status" in capsys.readouterr().err


def test_the_operator_is_not_ready_and_says_why(check: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with serving({"/apis/odradek.dev/v1": resources(SERVED), "/readyz": (503, b"starting")}) as url:
        assert check.main([url, url], 0) == 1
    assert "503 starting" in capsys.readouterr().err


def test_nobody_listens(check: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with serving({}) as url:
        gone = url
    assert check.main([gone, gone], 0) == 1
    assert "refused" in capsys.readouterr().err
