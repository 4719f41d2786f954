"""The blocking clients are generated from the asynchronous ones and have all of their methods."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from odradek import Admin, BlockingAdmin, BlockingConsumer, BlockingProducer, Consumer, Producer

PAIRS = [(Admin, BlockingAdmin), (Consumer, BlockingConsumer), (Producer, BlockingProducer)]
WITHOUT = {"start"}
"""The constructor of a blocking client calls `start`."""

SPECIAL = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__", "__anext__": "__next__"}


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    path = Path(__file__).parents[4] / "tools/clients.py"
    spec = spec_from_file_location("odradek_client_generator", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_committed_modules_are_up_to_date(generator: ModuleType) -> None:
    generated = generator.generate()
    committed = {path: path.read_text(encoding="utf-8") for path in generated}

    assert committed == generated, "run `make clients`"


def public_members(client: type) -> dict[str, object]:
    return {
        SPECIAL.get(name, name): member
        for each in reversed(client.__mro__[:-1])
        for name, member in vars(each).items()
        if name in SPECIAL or not (name.startswith("_") or name in WITHOUT)
    }


def function_of(member: object) -> Callable[..., object]:
    function = member.fget if isinstance(member, property) else member
    assert inspect.isfunction(function)
    return function


@pytest.mark.parametrize(("asynchronous", "blocking"), PAIRS)
def test_every_public_method_has_a_blocking_form_with_the_same_signature(asynchronous: type, blocking: type) -> None:
    expected = public_members(asynchronous)
    assert len(expected) > 5
    for name, member in expected.items():
        found = vars(blocking).get(name)
        assert found is not None, f"{blocking.__name__}.{name} is missing: run `make clients`"
        assert isinstance(found, property) == isinstance(member, property)
        wanted, actual = inspect.signature(function_of(member)), inspect.signature(function_of(found))
        assert list(actual.parameters.values()) == list(wanted.parameters.values()), name
        result = wanted.return_annotation.replace("asyncio.", "concurrent.futures.").replace(
            "AbstractAsync", "Abstract"
        )
        assert actual.return_annotation == result, name


@pytest.mark.parametrize(("asynchronous", "blocking"), PAIRS)
def test_every_public_method_blocks_and_has_a_docstring(asynchronous: type, blocking: type) -> None:
    for name in public_members(asynchronous):
        function = function_of(vars(blocking)[name])
        assert not inspect.iscoroutinefunction(function), name
        docstring = inspect.getdoc(function)
        assert docstring, name
        assert not re.search(r"\b(await|cancelled|coroutine)\b", docstring), f"{name}: add the phrase to CLIENTS"


SOURCE = '''
from collections.abc import AsyncIterator

import asyncio


class Cache:
    """A cache. Await it."""

    def __init__(self, size: int = 1, *, limit: int = 2, clock: int = 3) -> None:
        """`limit` is a number.

        `clock` is for tests.
        """

    {method}
'''


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ('def items(self) -> AsyncIterator[int]:\n        """All items."""', "has the name AsyncIterator"),
        ('async def get(self, task: asyncio.Task[int]) -> int:\n        """Get."""', "has the name asyncio"),
        ('async def get(self):\n        """Get."""', "does not declare its result"),
        ("async def get(self) -> int:\n        return 1", "has no docstring"),
        ('async def get(self) -> Answer:\n        """Get."""', "does not import the name Answer"),
        ('@staticmethod\n    def get() -> int:\n        """Get."""', "has a decorator"),
        ('async def get(self) -> int:\n        """Get.\n\n        - a\n        """', "has a list"),
    ],
)
def test_the_generator_refuses_what_it_cannot_translate(generator: ModuleType, method: str, message: str) -> None:
    client = generator.Client(path="client/cache", name="Cache", created_by="BlockingClient.cache")

    with pytest.raises(generator.GeneratorError, match=message):
        generator.blocking_source(client, SOURCE.format(method=method))


@pytest.mark.parametrize(
    ("differences", "message"),
    [
        ({"without": {"put": "unused"}}, r"none of the methods \['put'\]"),
        ({"phrases": {"Call `start` first.": ""}}, r"\['Call `start` first.'\]"),
        ({"notes": {"put": "Any thread can call it."}}, r"\['put'\]"),
    ],
)
def test_a_stale_entry_of_the_table_is_an_error(
    generator: ModuleType, differences: dict[str, dict[str, str]], message: str
) -> None:
    client = generator.Client(path="client/cache", name="Cache", created_by="BlockingClient.cache", **differences)
    source = SOURCE.format(method='async def get(self) -> int:\n        """Get."""')

    with pytest.raises(generator.GeneratorError, match=message):
        generator.blocking_source(client, source)


def test_differences_change_the_docstrings_and_omit_methods(generator: ModuleType) -> None:
    client = generator.Client(
        path="client/cache",
        name="Cache",
        created_by="BlockingClient.cache",
        without={"start": "The client starts it."},
        phrases={"Await it.": "Any thread can use it."},
        notes={"get": "The result is a copy."},
    )
    methods = (
        'async def start(self) -> None:\n        """Start."""\n\n'
        '    async def get(self, *keys: str, limit: int = 1) -> asyncio.Future[int]:\n        """Get."""'
    )
    source = generator.blocking_source(client, SOURCE.format(method=methods))

    assert '"""A cache. Any thread can use it.\n\n' in source
    assert "    `BlockingClient.cache` returns one with the settings of its client.\n" in source
    assert '"""Get.\n\n        The result is a copy.\n' in source
    assert "def __init__(self, size: int=1, *, limit: int=2) -> None:" in source
    assert "clock" not in source
    assert "self._cache = self._loop.start(lambda: Cache(size, limit=limit))" in source
    assert "def start" not in source
    assert "def get(self, *keys: str, limit: int=1) -> concurrent.futures.Future[int]:" in source
    assert "return self._loop.run_for_future(self._cache.get(*keys, limit=limit))" in source


def test_an_asynchronous_context_manager_becomes_a_blocking_one(generator: ModuleType) -> None:
    client = generator.Client(path="client/cache", name="Cache", created_by="BlockingClient.cache")
    method = 'def locked(self) -> AbstractAsyncContextManager[None]:\n        """Return a lock."""'
    source = generator.blocking_source(client, SOURCE.format(method=method))

    assert "def locked(self) -> AbstractContextManager[None]:" in source
    assert "return BlockingContext(self._loop, self._loop.call(self._cache.locked))" in source
    assert "from contextlib import AbstractContextManager" in source
