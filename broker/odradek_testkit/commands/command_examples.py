"""Finds the examples in the help of the commands, and runs one line of a shell in this process.

Only what examples use is understood: pipes, `<`, `>`, quotes and patterns of file names. `odradek` runs in this
process, because starting Python for each of more than a hundred lines takes minutes. `odradek produce` needs a real
standard input, so that it runs as a process, as all other programs.
"""

from __future__ import annotations

import glob
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click
from click.testing import CliRunner

from odradek.cli.main import cli

_HEADINGS: Final = ("Example:", "Examples:")


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield each command and subcommand with its path, such as `topic create`, without `odradek` itself."""
    for name, command in _members(cli):
        yield name, command
        if isinstance(command, click.Group):
            for inner, subcommand in _members(command):
                yield f"{name} {inner}", subcommand


def _members(group: click.Group) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        yield name, command


def examples(command: click.Command) -> list[str]:
    """Return the lines of the examples in the help of a command."""
    lines = [line.strip() for line in (command.help or "").splitlines()]
    heading = next((index for index, line in enumerate(lines) if line in _HEADINGS), None)
    if heading is None:
        return []
    following = lines[heading + 1 :]
    end = following.index("") if "" in following else len(following)
    return following[:end]


class Output(NamedTuple):
    """What a line printed, and the exit code of its last program."""

    exit_code: int
    stdout: str
    stderr: str


class Line(NamedTuple):
    """A line of a shell: programs with their arguments, and files for the input and the output."""

    programs: tuple[tuple[str, ...], ...]
    source: str | None = None
    target: str | None = None


def parsed(text: str) -> Line:
    """Return a line in parts. Patterns of file names are not expanded."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|<>")
    lexer.whitespace_split = True
    programs: list[list[str]] = [[]]
    files: dict[str, str] = {}
    tokens = iter(lexer)
    for token in tokens:
        if token == "|":
            programs.append([])
        elif token in ("<", ">"):
            files[token] = next(tokens)
        else:
            programs[-1].append(token)
    return Line(tuple(map(tuple, programs)), files.get("<"), files.get(">"))


def run_line(line: Line, *, folder: Path, environment: Mapping[str, str], answers: str) -> Output:
    """Run a line in the current folder, which must be `folder`. `answers` is the input of the first program if it has
    no other one."""
    text = answers if line.source is None else (folder / line.source).read_text(encoding="utf-8")
    output = Output(0, text, "")
    for program in line.programs:
        output = _run(_expanded(program), output.stdout, environment)
        if output.exit_code:
            break
    if line.target is not None:
        path = folder / line.target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(output.stdout, encoding="utf-8")
    return output


def _expanded(program: Sequence[str]) -> list[str]:
    """Return the arguments with file names in the place of patterns. Words without `/` are not patterns: they were
    quoted."""
    return [name for word in program for name in (sorted(glob.glob(word)) if "*" in word and "/" in word else [word])]


def _run(program: Sequence[str], stdin: str, environment: Mapping[str, str]) -> Output:
    if program[0] == "odradek" and program[1] != "produce":
        result = CliRunner().invoke(cli, list(program[1:]), input=stdin, env=environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Output(result.exit_code, result.stdout, result.stderr)
    done = subprocess.run(
        as_process(program),
        input=stdin,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return Output(done.returncode, done.stdout, done.stderr)


def as_process(program: Sequence[str]) -> list[str]:
    """Return the arguments that start a program as a process."""
    name, *arguments = program
    return [sys.executable, "-m", "odradek.cli.main", *arguments] if name == "odradek" else [name, *arguments]
