"""Tests rules for every Dockerfile of the project, and that the images fit the pods that the operator creates."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from images.builder.catalogue import DEFAULT_BASE, IMAGES, Image

from odradek_operator.objects import names

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "images"


def instructions(name: str) -> list[tuple[str, str]]:
    """The instructions as (instruction, rest). Continued lines are joined and comments are removed."""
    text = (FOLDER / name / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    words = (line.split(None, 1) for line in joined.splitlines() if line.strip())
    return [(found[0], found[1].strip()) for found in words]


def final_stage(name: str) -> list[tuple[str, str]]:
    found = instructions(name)
    last = max(index for index, (word, _) in enumerate(found) if word == "FROM")
    return found[last:]


def named(image: Image) -> str:
    return image.name


each = pytest.mark.parametrize("image", IMAGES, ids=named)


@each
def test_the_base_can_be_chosen_and_is_pinned(image: Image) -> None:
    found = instructions(image.name)
    assert found[0] == ("ARG", f"BASE={DEFAULT_BASE}")
    assert re.fullmatch(r"[a-z]+:[\w.-]+", DEFAULT_BASE)
    assert not DEFAULT_BASE.endswith(":latest")
    stages = [rest for word, rest in found if word == "FROM"]
    assert len(stages) > 1, "what builds does not belong into what runs"
    made_here = {stage.split()[-1] for stage in stages if " AS " in stage}
    assert {stage.split()[0] for stage in stages} <= {"${BASE}", *made_here}


@each
def test_it_runs_as_the_operators_user(image: Image) -> None:
    users = [rest for word, rest in final_stage(image.name) if word == "USER"]
    assert users == [f"{names.USER_ID}:{names.USER_ID}"]
    assert f"--uid {names.USER_ID} --gid {names.USER_ID}" in (FOLDER / "common/add-user").read_text(encoding="utf-8")


@each
def test_nothing_is_fetched_past_the_package_managers(image: Image) -> None:
    for word, rest in instructions(image.name):
        assert word != "ADD", "COPY takes files, and nothing else"
        assert not re.search(r"https?://|\bcurl\b|\bwget\b|\bgit\b", rest)


@each
def test_settings_of_the_machine_are_mounts_and_no_arguments(image: Image) -> None:
    found = instructions(image.name)
    assert {rest.partition("=")[0] for word, rest in found if word == "ARG"} == {"BASE", "VERSION", "REVISION"}
    for word, rest in found:
        if word == "RUN" and re.search(r"make-venv(?!.*--no-index)|add-java|add-compiler|build-wheel", rest):
            assert "--mount=type=secret,id=machine,target=/run/secrets/machine" in rest
            assert "--mount=type=tmpfs,target=/run/machine" in rest
        elif word != "RUN":
            assert "machine" not in rest.replace("with-machine", "")


@each
def test_it_says_what_it_is_and_how_it_ends(image: Image) -> None:
    found = dict(final_stage(image.name))
    for label in ("title", "description", "version", "revision"):
        assert f"org.opencontainers.image.{label}=" in found["LABEL"]
    assert found["STOPSIGNAL"] == "SIGTERM"
    assert found["WORKDIR"] == "/tmp"
    assert found["ENTRYPOINT"].startswith('["'), "a shell in between would keep signals to itself"
    assert "PYTHONDONTWRITEBYTECODE=1" in found["ENV"]
    assert "HOME=/tmp" in found["ENV"]


@each
def test_it_copies_only_what_the_builder_puts_there(image: Image) -> None:
    there = {path.name for path in (FOLDER / image.name).iterdir()} | set(image.scripts)
    there |= {"constraints.txt", "requirements.txt"} | ({"spark-wheels"} if image.has_spark else set())
    there.add("source" if image.is_compiled else "wheels")
    for word, rest in instructions(image.name):
        if word == "COPY" and not rest.startswith("--from"):
            assert set(rest.split()[:-1]) <= there
        for source in re.findall(r"type=bind,source=([\w-]+)", rest):
            assert source in there


@each
def test_the_compiler_is_in_no_final_image(image: Image) -> None:
    stages: dict[str, list[tuple[str, str]]] = {}
    for word, rest in instructions(image.name)[1:]:
        if word == "FROM":
            name = rest.partition(" AS ")[2]
        stages.setdefault(name, []).append((word, rest))
    compiling = {name for name, found in stages.items() if any("add-compiler" in rest for _, rest in found)}
    assert compiling == ({"wheel"} if image.is_compiled else set())
    taken = {rest for found in stages.values() for word, rest in found if "--from=wheel" in rest}
    assert taken <= {"--from=wheel /build/wheels /build/wheels"}
    assert not any("wheel" in rest for word, rest in stages[""] if word in ("FROM", "COPY"))


def test_stages_that_two_images_share_are_alike() -> None:
    def java(name: str) -> list[tuple[str, str]]:
        found = instructions(name)
        start = found.index(("FROM", "${BASE} AS java"))
        return found[start : start + 3]

    assert java("spark") == java("zookeeper")


@pytest.mark.parametrize("path", sorted((FOLDER / "common").iterdir()), ids=lambda path: path.name)
def test_scripts_can_be_run_and_read(path: Path) -> None:
    assert path.stat().st_mode & 0o111 == 0o111
    assert path.read_text(encoding="utf-8").startswith("#!/bin/sh\n")
    subprocess.run(["sh", "-n", path], check=True)
    assert re.search(r"^set -eu$", path.read_text(encoding="utf-8"), re.MULTILINE), "the first failure ends it"
