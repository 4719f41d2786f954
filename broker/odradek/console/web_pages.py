"""The routes of the console. Each view is a page, and the same data as JSON below `/api`.

A view is a function of a `Visit`, the request of one user, that returns the data. `console_changes` has the changes.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import jinja2
from aiohttp import web

from odradek.base.errors import ConfigError, GroupIdNotFoundError, OdradekError, UnknownTopicOrPartitionError
from odradek.base.ports import Clock
from odradek.base.types import TopicPartition
from odradek.client.admin import Admin
from odradek.console import cluster_reads, console_changes, topic_reads
from odradek.console.cluster_reads import ActivityLine
from odradek.console.console_sessions import ConsoleSession, SessionStore
from odradek.console.console_settings import ConsoleSettings, Credentials
from odradek.console.message_query import format_positions, parse_query
from odradek.console.message_scan import MessageScan, read_record
from odradek.console.shown_bytes import indented_json, whole_record
from odradek.console.web_guard import COOKIE, SESSION, redirect

Activity = Callable[[], Sequence[ActivityLine]]
_MAX_PAGE: Final = 1_000_000
_DONE: Final = {
    "created": "The topic was created.",
    "deleted": "The topic was deleted.",
    "configured": "The configuration was changed.",
    "reset": "The offsets of the group were set.",
}
"""Messages after a change, by the parameter `done`."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One request, and what a view needs to answer it."""

    request: web.Request
    session: ConsoleSession
    pages: WebPages

    @property
    def admin(self) -> Admin:
        """The admin client of the user."""
        return self.session.admin

    @property
    def page(self) -> int:
        """The requested page of a list. Raises `ConfigError`."""
        text = self.request.query.get("page", "1")
        if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= _MAX_PAGE:
            raise ConfigError(f"page={text[:100]} is not allowed: it must be a number from 1")
        return int(text[:9])

    @property
    def text(self) -> str:
        """The text that the names in a list must contain."""
        return self.request.query.get("q", "").strip()[:300]

    def number(self, name: str) -> int:
        """Return a number in the path. The route has checked that it has digits only."""
        return int(self.request.match_info[name])


View = Callable[[Visit], Awaitable[dict[str, Any]]]


class _Route(NamedTuple):
    path: str
    template: str
    view: View


async def _overview(visit: Visit) -> dict[str, Any]:
    return await cluster_reads.read_overview(visit.admin)


async def _brokers(visit: Visit) -> dict[str, Any]:
    return await cluster_reads.read_brokers(visit.admin)


async def _broker(visit: Visit) -> dict[str, Any]:
    found = await cluster_reads.read_broker(visit.admin, visit.number("broker"))
    if found is None:
        raise UnknownTopicOrPartitionError(f"No broker with the id {visit.number('broker')} is running")
    return found


async def _topics(visit: Visit) -> dict[str, Any]:
    return await topic_reads.read_topics(visit.admin, visit.text, visit.page)


async def _topic(visit: Visit) -> dict[str, Any]:
    return await topic_reads.read_topic(visit.admin, visit.request.match_info["topic"])


async def _groups(visit: Visit) -> dict[str, Any]:
    return await topic_reads.read_groups(visit.admin, visit.text, visit.page)


async def _group(visit: Visit) -> dict[str, Any]:
    group_id = visit.request.query.get("id", "")
    found = await topic_reads.read_group(visit.admin, group_id) if group_id else None
    if found is None:
        raise GroupIdNotFoundError(f"Group {group_id} does not exist")
    return found


async def _activity(visit: Visit) -> dict[str, Any]:
    return await cluster_reads.read_activity(visit.admin, visit.pages.activity)


async def _messages(visit: Visit) -> dict[str, Any]:
    """Return the messages that a search finds. The page of a topic without a search shows only the form."""
    name = visit.request.match_info["topic"]
    pages = visit.pages
    topic = await topic_reads.describe_one(visit.admin, name)
    numbers = [each.partition for each in topic.partitions]
    limits = pages.settings.limits
    query = parse_query(visit.request.query, limits.results)
    with pages.sessions.scanning(visit.session):
        found = await MessageScan(name, numbers, query, limits).run(visit.session.settings, pages.clock)
    return {
        "topic": name,
        "partitions": numbers,
        "records": [asdict(record) for record in found.records],
        "scanned": found.scanned,
        "scanned_bytes": found.scanned_bytes,
        "stopped": found.stopped,
        "positions": format_positions(found.positions),
    }


async def _message(visit: Visit) -> dict[str, Any]:
    record = await visit.pages.record_of(visit)
    return {
        "topic": record.topic,
        "record": asdict(whole_record(record)),
        "value_json": indented_json(record.value),
        "key_json": indented_json(record.key),
    }


_ROUTES: Final = (
    _Route("/", "overview.html", _overview),
    _Route("/brokers", "brokers.html", _brokers),
    _Route(r"/brokers/{broker:\d{1,10}}", "broker.html", _broker),
    _Route("/topics", "topics.html", _topics),
    _Route("/topics/{topic}", "topic.html", _topic),
    _Route("/topics/{topic}/messages", "messages.html", _messages),
    _Route(r"/topics/{topic}/messages/{partition:\d{1,10}}/{offset:\d{1,18}}", "message.html", _message),
    _Route("/groups", "groups.html", _groups),
    _Route("/group", "group.html", _group),
    _Route("/activity", "activity.html", _activity),
)


class WebPages:
    """Renders the views, and carries out logins and changes."""

    def __init__(
        self, settings: ConsoleSettings, sessions: SessionStore, clock: Clock, activity: Activity = tuple
    ) -> None:
        """`activity` returns what the operator reports, newest first."""
        self.settings: Final = settings
        self.sessions: Final = sessions
        self.clock: Final = clock
        self.activity: Final = activity
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader("odradek.console"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(size=size_text, time=time_text, duration=duration_text, segment=_segment)
        self._templates.globals["link"] = _link

    def add_to(self, app: web.Application) -> None:
        """Add all routes."""
        for route in _ROUTES:
            app.router.add_get(route.path, self._page(route))
            app.router.add_get(f"/api{'/overview' if route.path == '/' else route.path}", self._json(route.view))
        app.router.add_get(
            r"/topics/{topic}/messages/{partition:\d{1,10}}/{offset:\d{1,18}}/{part:key|value}", self._download
        )
        app.router.add_get("/login", self._login_page)
        app.router.add_post("/login", self._login)
        app.router.add_post("/logout", self._logout)
        app.router.add_get("/healthz", _healthz)
        app.router.add_post("/topics", self._change(self._create_topic))
        app.router.add_post("/topics/{topic}/delete", self._change(self._delete_topic))
        app.router.add_post("/topics/{topic}/config", self._change(self._alter_config))
        app.router.add_post("/group/offsets", self._change(self._reset_offsets))

    # Pages

    def _page(self, route: _Route) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def serve(request: web.Request) -> web.Response:
            data = await route.view(Visit(request, request[SESSION], self))
            return self.render(request, route.template, data)

        return serve

    def _json(self, view: View) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def serve(request: web.Request) -> web.Response:
            data = await view(Visit(request, request[SESSION], self))
            return web.json_response(data, dumps=lambda value: json.dumps(value, ensure_ascii=True))

        return serve

    def render(
        self, request: web.Request, template: str, data: Mapping[str, Any], *, status: int = 200
    ) -> web.Response:
        """Return a page."""
        session: ConsoleSession | None = request.get(SESSION)
        text = self._templates.get_template(template).render(
            data=data,
            query=request.query,
            path=request.path,
            user=session.user if session else "",
            form_token=session.form_token if session else self.sessions.login_token,
            has_session=session is not None,
            allow_changes=self.settings.allow_changes and session is not None,
            done=_DONE.get(request.query.get("done", ""), ""),
            bootstrap=self.settings.properties.get("bootstrap.servers", ""),
            limits=self.settings.limits,
        )
        return web.Response(text=text, content_type="text/html", status=status)

    def render_error(self, request: web.Request, status: int, text: str) -> web.Response:
        """Return the page of an error."""
        return self.render(request, "error.html", {"status": status, "text": text}, status=status)

    async def record_of(self, visit: Visit) -> Any:
        """Return the record in the path of a request. Raises `UnknownTopicOrPartitionError`."""
        place = TopicPartition(visit.request.match_info["topic"], visit.number("partition"))
        topic = await topic_reads.describe_one(visit.admin, place.topic)
        if place.partition not in {each.partition for each in topic.partitions}:
            raise UnknownTopicOrPartitionError(f"Topic {place.topic} has no partition {place.partition}")
        with self.sessions.scanning(visit.session):
            return await read_record(visit.session.settings, place, visit.number("offset"), self.clock)

    async def _download(self, request: web.Request) -> web.Response:
        """Send a whole key or value as a file, which a browser never interprets."""
        visit = Visit(request, request[SESSION], self)
        record = await self.record_of(visit)
        part = request.match_info["part"]
        content: bytes | None = record.key if part == "key" else record.value
        if content is None:
            raise UnknownTopicOrPartitionError(f"This message has no {part}")
        name = f"{record.topic}-{record.partition}-{record.offset}.{part}"
        headers = {"Content-Disposition": f'attachment; filename="{quote(name)}"'}
        return web.Response(body=content, content_type="application/octet-stream", headers=headers)

    # Logins

    async def _login_page(self, request: web.Request) -> web.StreamResponse:
        if not self.settings.needs_login:
            return redirect("/")
        return self._login_form(request, "", request.query.get("next", "/"))

    def _login_form(self, request: web.Request, error: str, there: str, status: int = 200) -> web.Response:
        data = {"mechanisms": self.settings.mechanisms, "error": error, "next": local_path(there)}
        return self.render(request, "login.html", data, status=status)

    async def _login(self, request: web.Request) -> web.StreamResponse:
        if not self.settings.needs_login:
            return redirect("/")
        form = await _form(request)
        credentials = Credentials(
            mechanism=form.get("mechanism", self.settings.mechanisms[0]),
            user=form.get("user", ""),
            secret=form.get("secret", ""),
        )
        there = local_path(form.get("next", "/"))
        try:
            token = await self.sessions.open(credentials)
        except OdradekError as error:
            return self._login_form(request, f"Login failed: {error}", there, status=403)
        await self.sessions.end(request.cookies.get(COOKIE, ""))
        response = redirect(there)
        response.set_cookie(
            COOKIE, token, path="/", httponly=True, samesite="Lax", secure=self.settings.uses_https
        )  # fmt: skip
        return response

    async def _logout(self, request: web.Request) -> web.StreamResponse:
        await self.sessions.end(request.cookies.get(COOKIE, ""))
        response = redirect("/")
        response.del_cookie(COOKIE, path="/")
        return response

    # Changes

    def _change(
        self, change: Callable[[web.Request, Admin, Mapping[str, str]], Awaitable[str]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def serve(request: web.Request) -> web.StreamResponse:
            if not self.settings.allow_changes:
                raise web.HTTPForbidden(reason="The console is read-only. --allow-changes enables changes.")
            return redirect(await change(request, request[SESSION].admin, await _form(request)))

        return serve

    async def _create_topic(self, request: web.Request, admin: Admin, form: Mapping[str, str]) -> str:
        name = await console_changes.create_topic(admin, form)
        return f"/topics/{_segment(name)}?done=created"

    async def _delete_topic(self, request: web.Request, admin: Admin, form: Mapping[str, str]) -> str:
        await console_changes.delete_topic(admin, request.match_info["topic"], form)
        return "/topics?done=deleted"

    async def _alter_config(self, request: web.Request, admin: Admin, form: Mapping[str, str]) -> str:
        topic = request.match_info["topic"]
        await console_changes.alter_config(admin, topic, form)
        return f"/topics/{_segment(topic)}?done=configured"

    async def _reset_offsets(self, request: web.Request, admin: Admin, form: Mapping[str, str]) -> str:
        group_id = form.get("id", "")
        await console_changes.reset_offsets(admin, group_id, form)
        return _link("/group", id=group_id, done="reset")


async def _healthz(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _form(request: web.Request) -> dict[str, str]:
    return {name: value for name, value in (await request.post()).items() if isinstance(value, str)}


def local_path(text: str) -> str:
    """Return a path of the console to go to after a login; `/` for anything else, such as an address elsewhere."""
    is_local = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
    return text if is_local and "\\" not in text else "/"


def _segment(text: object) -> str:
    """Return a text as one segment of a path."""
    return quote(str(text), safe="")


def _link(path: str, base: Mapping[str, str] | None = None, **parameters: object) -> str:
    """Return a path with the parameters of `base`, changed by `parameters`; None removes one."""
    merged = {**(base or {}), **parameters}
    text = urlencode({name: value for name, value in merged.items() if value not in (None, "")})
    return f"{path}?{text}" if text else path


def size_text(size: float | None) -> str:
    """Return a number of bytes for people."""
    if size is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def time_text(time_ms: int) -> str:
    """Return a time in ISO 8601, UTC; the number if there is no such year."""
    if time_ms < 0:
        return "–"
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return str(time_ms)


def duration_text(time_ms: int | None) -> str:
    """Return a duration in its two largest units."""
    if time_ms is None:
        return "–"
    seconds = time_ms // 1000
    for size, unit, part, smaller in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            return f"{seconds // size} {unit} {seconds % size // part} {smaller}"
    return f"{seconds} s" if seconds else f"{time_ms} ms"
