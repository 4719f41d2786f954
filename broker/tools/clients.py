"""Generates the blocking clients in `odradek.client.blocking` from the asynchronous classes.

Usage: `python broker/tools/clients.py` or `make clients`. See docs/design/0017.

A blocking method has the parameters and the docstring of the asynchronous one and runs it on the event loop of the
client's background thread. `CLIENTS` lists every difference.
"""

from __future__ import annotations

import ast
import builtins
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

BROKER: Final = Path(__file__).resolve().parents[1]
ROOT: Final = BROKER.parent
PACKAGE: Final = BROKER / "odradek/client/blocking"
LINE_LENGTH: Final = 120

_STARTED_BY_CLIENT: Final = "The constructor of the blocking form starts the object."
_ANY_THREAD: Final = "Any thread can wait for the future."


@dataclass(frozen=True)
class Client:
    """An asynchronous class and the differences of its blocking form."""

    path: str
    """Module of the asynchronous class, below the package `odradek`."""

    name: str
    created_by: str
    """What users call to get the blocking form."""

    parents: tuple[tuple[str, str], ...] = ()
    """Classes whose methods the class inherits: module, as in `path`, and name."""

    without: Mapping[str, str] = field(default_factory=dict)
    """Public methods that have no blocking form, and why."""

    phrases: Mapping[str, str] = field(default_factory=dict)
    """Text in docstrings that does not hold for a blocking caller, and what replaces it."""

    notes: Mapping[str, str] = field(default_factory=dict)
    """Text that is added to the docstring of a method."""

    @property
    def attribute(self) -> str:
        """Name of the asynchronous object in the blocking one."""
        return self.name.lower()


CLIENTS: Final = (
    Client(
        path="client/admin",
        name="Admin",
        created_by="BlockingClient.admin",
        parents=(
            ("client/administration/group_admin", "GroupAdmin"),
            ("client/administration/access_admin", "AccessAdmin"),
            ("client/administration/token_admin", "TokenAdmin"),
            ("client/administration/transaction_admin", "TransactionAdmin"),
            ("client/administration/partition_admin", "PartitionAdmin"),
            ("client/administration/feature_admin", "FeatureAdmin"),
        ),
        without={"start": _STARTED_BY_CLIENT},
        phrases={
            "Bound to one event loop. Call `start` first, or use `async with`; `close` is idempotent.": (
                "Any thread can use it; `close` is idempotent."
            ),
            "If cancelled, it closes immediately.": (
                "If interrupted, for example by Ctrl-C, it closes immediately. Does nothing if the connections belong"
                " to a `BlockingClient`, which closes them itself."
            ),
        },
    ),
    Client(
        path="client/consumer/consumer",
        name="Consumer",
        created_by="BlockingClient.consumer",
        parents=(("client/consumer/offset_lookups", "OffsetLookups"),),
        without={"start": _STARTED_BY_CLIENT},
        phrases={
            "Bound to one event loop. Call `start` first, or use `async with`; `close` is idempotent.": (
                "One thread at a time can use it; `close` is idempotent. Heartbeats and fetches continue in the"
                " background thread of the client between calls."
            ),
            "or if cancelled": "or if interrupted, for example by Ctrl-C",
        },
        notes={
            "__init__": "The event loop of the client calls deserializers and interceptors, so they must not block.",
            "subscribe": (
                "The listener runs on the event loop of the client. It must not block, and it must not call a blocking"
                " client."
            ),
        },
    ),
    Client(
        path="client/producer/producer",
        name="Producer",
        created_by="BlockingClient.producer",
        without={"start": _STARTED_BY_CLIENT},
        phrases={
            (
                "Bound to one event loop. Call `start` first, or use `async with`; `close` is idempotent and sends"
                " buffered records."
            ): (
                "Any thread can use it; `close` is idempotent and sends buffered records. Each call waits for the"
                " event loop of the client, so `send_many` is the faster way to send many records."
            ),
            "If cancelled, it": "If interrupted, for example by Ctrl-C, it",
            "raises an error, or is cancelled, the": "raises an error, or is interrupted, the",
        },
        notes={
            "__init__": (
                "The event loop of the client calls serializers, partitioner and interceptors, so they must not block."
            ),
            "send": _ANY_THREAD,
            "send_many": _ANY_THREAD,
            "send_encoded": _ANY_THREAD,
        },
    ),
)

_SPECIAL: Final[Mapping[str, tuple[str, str]]] = {
    "__aenter__": ("__enter__", "return self"),
    "__aexit__": ("__exit__", "self.close()"),
    "__aiter__": ("__iter__", "return self"),
    "__anext__": ("__next__", ""),
}
"""Special methods: the blocking name and the body. An empty body runs the asynchronous method."""

_ENTER_DOCSTRING: Final = "Return the object itself, which is already started."
_INIT_NOTE: Final = (
    "Connects, as `start` of the asynchronous form. Raises `NetworkError` if no bootstrap server answers."
)
_FOR_TESTS: Final = ("clock", "cluster", "connect")
"""Parameters of constructors that the blocking form does not have."""

_FUTURE: Final = "asyncio.Future"
_BLOCKING_FUTURE: Final = "concurrent.futures.Future"
_CONTEXT: Final = "AbstractAsyncContextManager"
_BLOCKING_CONTEXT: Final = "AbstractContextManager"
_CONTEXT_OBJECT: Final = "BlockingContext"
_ASYNCHRONOUS: Final = ("asyncio", "AsyncIterator", "AsyncGenerator", "AsyncIterable", "Awaitable", "Coroutine")

Function = ast.FunctionDef | ast.AsyncFunctionDef


class GeneratorError(Exception):
    """The asynchronous class has something that the generator cannot translate, or an entry of the table is stale."""


class _Docstrings:
    """The docstrings of one class, changed for blocking callers."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._used: set[str] = set()

    def of(self, node: Function | ast.ClassDef, indent: int) -> list[str]:
        """Return the lines of a docstring, quotes included."""
        text = ast.get_docstring(node)
        if text is None:
            raise GeneratorError(f"{self._client.name}.{node.name} has no docstring")
        if node.name == "__aenter__":
            text = _ENTER_DOCSTRING
        if node.name == "__init__":
            # The last paragraph is about parameters for tests, which the blocking form does not have.
            text = text.rpartition("\n\n")[0] + "\n\n" + _INIT_NOTE
        if "\n- " in text:
            raise GeneratorError(f"the docstring of {self._client.name}.{node.name} has a list, which would be wrapped")
        paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
        paragraphs = [self._adjusted(paragraph) for paragraph in paragraphs]
        if node.name in self._client.notes:
            self._used.add(node.name)
            paragraphs.append(self._client.notes[node.name])
        if isinstance(node, ast.ClassDef):
            paragraphs.append(f"`{self._client.created_by}` returns one with the settings of its client.")
        return docstring(paragraphs, indent)

    def check_all_used(self) -> None:
        """Raise `GeneratorError` if an entry of the table changed nothing."""
        stale = {*self._client.phrases, *self._client.notes} - self._used
        if stale:
            raise GeneratorError(f"no docstring of {self._client.name} has these entries of CLIENTS: {sorted(stale)}")

    def _adjusted(self, paragraph: str) -> str:
        for phrase, replacement in self._client.phrases.items():
            if phrase in paragraph:
                self._used.add(phrase)
                paragraph = paragraph.replace(phrase, replacement)
        return paragraph


def docstring(paragraphs: Iterable[str], indent: int) -> list[str]:
    """Return the lines of a docstring, wrapped at the line length."""
    paragraphs = list(paragraphs)
    if any("\\" in paragraph or '"""' in paragraph for paragraph in paragraphs):
        raise GeneratorError(f"a docstring has a backslash or three quotes: {paragraphs[0]}")
    margin = " " * indent
    one_line = f'{margin}"""{paragraphs[0]}"""'
    if len(paragraphs) == 1 and len(one_line) <= LINE_LENGTH:
        return [one_line]
    lines: list[str] = []
    for paragraph in paragraphs:
        opening = "" if lines else '"""'
        lines += [""] if lines else []
        # The formatter appends the closing quotes to a text of one line.
        lines += textwrap.wrap(
            opening + paragraph,
            LINE_LENGTH - len('"""'),
            initial_indent=margin,
            subsequent_indent=margin,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return [*lines, f'{margin}"""']


class _Imports:
    """The imports of a generated module: the names in signatures, from where the asynchronous module has them."""

    def __init__(self, tree: ast.Module, module: str) -> None:
        self._module = module
        self._known: dict[str, str] = {}
        for node in tree.body:
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    imported = alias.name if alias.asname is None else f"{alias.name} as {alias.asname}"
                    self._known[alias.asname or alias.name] = f"from {node.module} import {imported}"
            elif isinstance(node, ast.ClassDef):
                self._known[node.name] = f"from {module} import {node.name}"
        self.lines: set[str] = set()

    def add(self, *nodes: ast.AST | None) -> None:
        """Import the names that these annotations and defaults use."""
        for node in nodes:
            for inner in ast.walk(node) if node is not None else ():
                if isinstance(inner, ast.Name) and not hasattr(builtins, inner.id):
                    self.add_name(inner.id)

    def add_name(self, name: str) -> None:
        """Import one name."""
        if name not in self._known:
            raise GeneratorError(f"the module {self._module} does not import the name {name} of a signature")
        self.lines.add(self._known[name])


class _Class:
    """The blocking form of one class."""

    def __init__(self, client: Client, source: str) -> None:
        self._client = client
        self._docstrings = _Docstrings(client)
        self._class, self._imports = _parsed(source, client.path, client.name)
        self._parents = [_parsed(source_of(path), path, name) for path, name in client.parents]

    def module(self) -> str:
        """Return the source of the blocking module, not yet formatted."""
        client = self._client
        body = [
            f"class Blocking{client.name}:",
            *self._docstrings.of(self._class, 4),
            "",
            "    _loop: LoopThread",
            f"    _{client.attribute}: {client.name}",
            "",
            *self._constructor(),
            "    @classmethod",
            f"    def of(cls, loop: LoopThread, {client.attribute}: {client.name}) -> Self:",
            f'        """Return the blocking form of a started {client.attribute}, which belongs to `loop`."""',
            "        blocking = cls.__new__(cls)",
            "        blocking._loop = loop",
            f"        blocking._{client.attribute} = {client.attribute}",
            "        return blocking",
        ]
        for method in self._public_methods():
            body += ["", *self._method(method, self._imports)]
        for parent, imports in self._parents:
            for method in _own_public_methods(parent):
                body += ["", *self._method(method, imports)]
        self._docstrings.check_all_used()
        self._imports.add_name(client.name)
        imported = self._imports.lines.union(*(imports.lines for _, imports in self._parents))
        has_context = any(_CONTEXT_OBJECT in line for line in body)
        helpers = [_CONTEXT_OBJECT, "LoopThread"] if has_context else ["LoopThread"]
        context = [f"from contextlib import {_BLOCKING_CONTEXT}"] if has_context else []
        future = [f"import {_BLOCKING_FUTURE.rpartition('.')[0]}"] if _BLOCKING_FUTURE in "\n".join(body) else []
        return "\n".join(
            [
                f'"""`{client.name}` for threads.',
                "",
                f"Generated by `make clients` from `{client.path}`: do not edit.",
                '"""',
                "",
                "from __future__ import annotations",
                "",
                *future,
                *context,
                *sorted({*imported, "from typing import Self"}),
                "from odradek.client.blocking import loop_thread",
                f"from odradek.client.blocking.loop_thread import {', '.join(helpers)}",
                "",
                *body,
                "",
            ]
        )

    def _constructor(self) -> list[str]:
        """Return a constructor that also starts the asynchronous object."""
        client = self._client
        for node in self._class.body:
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                break
        else:
            raise GeneratorError(f"{client.name} has no constructor")
        without_tests = [
            (parameter, default)
            for parameter, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            if parameter.arg not in _FOR_TESTS
        ]
        node.args.kwonlyargs = [parameter for parameter, _ in without_tests]
        node.args.kw_defaults = [default for _, default in without_tests]
        self._imports.add(node.args)
        return [
            f"    def __init__({ast.unparse(node.args)}) -> None:",
            *self._docstrings.of(node, 8),
            "        self._loop = loop_thread.current()",
            f"        self._{client.attribute} = self._loop.start(lambda: {client.name}({_arguments(node.args)}))",
            "",
        ]

    def _public_methods(self) -> Iterator[Function]:
        left = set(self._client.without)
        for node in _own_public_methods(self._class):
            if node.name in self._client.without:
                left.discard(node.name)
            else:
                yield node
        if left:
            raise GeneratorError(f"{self._client.name} has none of the methods {sorted(left)} of CLIENTS")

    def _method(self, node: Function, imports: _Imports) -> list[str]:
        name, body = _SPECIAL.get(node.name, (node.name, ""))
        if any(decorator != "property" for decorator in map(ast.unparse, node.decorator_list)):
            raise GeneratorError(f"{self._client.name}.{node.name} has a decorator that the generator does not know")
        future = _future_result(node)
        context = _result_inside(node, _CONTEXT)
        result = future or context or node.returns
        if result is None:
            raise GeneratorError(f"{self._client.name}.{node.name} does not declare its result")
        self._check_is_blocking(node.name, node.args, result)
        imports.add(node.args, result)
        returns = ast.unparse(result)
        if future or context:
            returns = f"{_BLOCKING_FUTURE if future else _BLOCKING_CONTEXT}[{returns}]"
        return [
            *(f"    @{ast.unparse(decorator)}" for decorator in node.decorator_list),
            f"    def {name}({ast.unparse(node.args)}) -> {returns}:",
            *self._docstrings.of(node, 8),
            *textwrap.indent(body or self._body(node), " " * 8).split("\n"),
        ]

    def _check_is_blocking(self, name: str, *nodes: ast.AST) -> None:
        for node in nodes:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Name) and inner.id in _ASYNCHRONOUS:
                    raise GeneratorError(f"the signature of {self._client.name}.{name} has the name {inner.id}")

    def _body(self, node: Function) -> str:
        target = f"self._{self._client.attribute}.{node.name}"
        call = f"{target}({_arguments(node.args)})"
        if isinstance(node, ast.AsyncFunctionDef):
            run = "run_for_future" if _future_result(node) else "run"
            statement = f"self._loop.{run}({call})"
        elif node.decorator_list:
            statement = f"self._loop.call(lambda: {target})"
        else:
            statement = f"self._loop.call({target if call.endswith('()') else f'lambda: {call}'})"
        if _result_inside(node, _CONTEXT):
            statement = f"{_CONTEXT_OBJECT}(self._loop, {statement})"
        if node.returns is None or ast.unparse(node.returns) != "None":
            statement = f"return {statement}"
        if node.name != "__anext__":
            return statement
        return f"try:\n    {statement}\nexcept StopAsyncIteration:\n    raise StopIteration from None"


def _parsed(source: str, path: str, name: str) -> tuple[ast.ClassDef, _Imports]:
    """Return a class of a module, and the imports of the module."""
    tree = ast.parse(source)
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node, _Imports(tree, "odradek." + path.replace("/", "."))
    raise GeneratorError(f"{path} has no class {name}")


def _own_public_methods(node: ast.ClassDef) -> Iterator[Function]:
    for each in node.body:
        if isinstance(each, Function) and (each.name in _SPECIAL or not each.name.startswith("_")):
            yield each


def _future_result(node: Function) -> ast.expr | None:
    """Return the type of the value if the method returns a future, else None."""
    return _result_inside(node, _FUTURE)


def _result_inside(node: Function, outer: str) -> ast.expr | None:
    """Return the type in the brackets if the method returns `outer[...]`, else None."""
    if isinstance(node.returns, ast.Subscript) and ast.unparse(node.returns.value) == outer:
        return node.returns.slice
    return None


def _arguments(parameters: ast.arguments) -> str:
    """Return the arguments of a call that passes all parameters on."""
    names = [parameter.arg for parameter in (*parameters.posonlyargs, *parameters.args)][1:]
    if parameters.vararg is not None:
        names.append(f"*{parameters.vararg.arg}")
    names += [f"{parameter.arg}={parameter.arg}" for parameter in parameters.kwonlyargs]
    if parameters.kwarg is not None:
        names.append(f"**{parameters.kwarg.arg}")
    return ", ".join(names)


def source_of(path: str) -> str:
    """Return the source of a module below the package `odradek`."""
    return (BROKER / f"odradek/{path}.py").read_text(encoding="utf-8")


def blocking_source(client: Client, source: str) -> str:
    """Return the blocking module for the source of an asynchronous module, not yet formatted."""
    return _Class(client, source).module()


def _formatted(source: str) -> str:
    ruff = [sys.executable, "-m", "ruff"]
    config = ["--config", str(ROOT / "pyproject.toml"), "-"]
    for arguments in (["check", "--select", "I", "--fix", "--quiet"], ["format"]):
        command = [*ruff, *arguments, *config]
        source = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    return source


def generate() -> dict[Path, str]:
    """Return the source of each generated module by path."""
    sources = {}
    for client in CLIENTS:
        path = PACKAGE / f"blocking_{client.attribute}.py"
        sources[path] = _formatted(blocking_source(client, source_of(client.path)))
    return sources


def main() -> None:
    """Write the generated modules."""
    for path, source in generate().items():
        path.write_text(source, encoding="utf-8")


if __name__ == "__main__":
    main()
