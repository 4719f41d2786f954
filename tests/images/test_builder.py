"""Tests the image builder: hashes, the base image, requirements, command lines, and whole runs with a fake engine."""

from __future__ import annotations

import fcntl
import io
import json
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from images.build import main, options, parser, table
from images.builder import base, wheels
from images.builder.catalogue import IMAGES, NAMES, OWN_BASE, SOURCES, WHEEL_FILES
from images.builder.engines import ENGINES, Build, Engine, find_engine, run
from images.builder.errors import BuildError
from images.builder.hashing import content_hash, hash_file, is_fresh
from images.builder.job import Built, Job, Options

from odradek.testing.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]


def test_a_hash_follows_names_contents_and_modes_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    file = tmp_path / "a/x"
    file.write_text("1")

    def now(*values: str) -> str:
        return content_hash(tmp_path, [tmp_path / "a"], values)

    first = now("v")
    (tmp_path / "a/__pycache__").mkdir()
    (tmp_path / "a/__pycache__/x.pyc").write_text("2")
    file.touch()
    assert now("v") == first
    assert len({first, now(), now("w"), now("v", ""), now("", "v")}) == 5
    file.write_text("2")
    assert now("v") != first
    file.write_text("1")
    file.chmod(0o755)
    assert now("v") != first
    file.chmod(0o644)
    assert now("v") == first
    file.rename(tmp_path / "a/y")
    assert now("v") != first


def test_an_archive_is_fresh_with_its_hash_only(tmp_path: Path) -> None:
    archive = tmp_path / "broker.tar"
    hash_file(archive).write_text("abc\n")
    assert not is_fresh(archive, "abc")
    archive.touch()
    assert is_fresh(archive, "abc")
    assert not is_fresh(archive, "abd")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", base.PUBLIC_MIRROR),
        ("deb http://m.example/debian bookworm main\n", "http://m.example/debian"),
        ("deb [signed-by=/k arch=amd64] https://m.example/d bookworm main contrib", "https://m.example/d"),
        ("deb http://m.example/debian trixie main\n", base.PUBLIC_MIRROR),
        ("deb http://m.example/security bookworm-security main\n", base.PUBLIC_MIRROR),
        ("# deb http://old.example/d bookworm main\n", base.PUBLIC_MIRROR),
        (
            "Types: deb\nURIs: http://s.example\nSuites: bookworm-security\n\n"
            "Types: deb\nURIs: http://m.example/debian\nSuites: bookworm bookworm-updates\nComponents: main\n",
            "http://m.example/debian",
        ),
    ],
)
def test_the_mirror_is_that_of_apt(text: str, expected: str) -> None:
    assert base.mirror([text]) == expected


def test_cleaning_leaves_nothing_of_the_machine(tmp_path: Path) -> None:
    for name in (*base.EMPTIED, "etc/apt"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    (tmp_path / "etc/apt/sources.list").write_text("deb http://mirror.example/debian bookworm main\n")
    (tmp_path / "etc/machine-id").write_text("1234\n")
    (tmp_path / "root/.bashrc").write_text("x")
    (tmp_path / "var/log/apt").mkdir()
    (tmp_path / "var/log/apt/history.log").write_text("mirror.example")
    (tmp_path / "etc/resolv.conf").symlink_to("/nowhere")
    base.clean(tmp_path)
    files = [path for path in tmp_path.rglob("*") if not path.is_dir()]
    assert files == [tmp_path / "etc/apt/sources.list"]
    assert "mirror.example" not in files[0].read_text()
    assert all((tmp_path / name).is_dir() for name in base.EMPTIED)


def test_requirements_are_those_of_the_project() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    plain = wheels.requirements(text, ())
    assert any(line.startswith("uvloop") for line in plain)
    assert not any(line.startswith(("kopf", "kubernetes", "pyspark", "pytest")) for line in plain)
    assert any(line.startswith("kopf") for line in wheels.requirements(text, ("operator",)))


def test_sparks_version_is_the_constrained_one() -> None:
    assert wheels.spark_version("py4j==1\npyspark==4.3.0\n") == "4.3.0"
    assert wheels.spark_version((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    with pytest.raises(BuildError):
        wheels.spark_version("pyspark>=4\n")


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_engines_are_told_the_same(engine: Engine) -> None:
    build = Build(folder=Path("/f"), reference="p/n:1", arguments={"BASE": "b", "VERSION": "1"}, secret=Path("/s"))
    command = engine.build_command(build)
    assert command[0] == engine.name
    assert command[-3:] == ["--tag", "p/n:1", "/f"]
    assert {"--build-arg=BASE=b", "--build-arg=VERSION=1", "--secret=id=machine,src=/s"} <= set(command)
    assert "p/n:1" in " ".join(engine.save("p/n:1", Path("/o.tar")))


def test_options_have_their_defaults() -> None:
    found = options(parser().parse_args([]))
    assert found.images == IMAGES
    assert (found.prefix, found.version) == ("odradek", "0.1.0")
    chosen = options(parser().parse_args(["--only", "spark", "--only", "broker", "--prefix", "r.example/o/"]))
    assert [image.name for image in chosen.images] == ["broker", "spark"]
    assert chosen.prefix == "r.example/o"


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in (*NAMES, "docker push", "--base debian", "examples:"))


def test_the_table_tells_sizes(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    archive.write_bytes(bytes(2_000_000))
    text = table(
        [
            Built(reference="o/a:1", seconds=1.25, archive=archive, was_fresh=False),
            Built(reference="o/longer:1", seconds=0, archive=None, was_fresh=True),
        ]
    )
    assert [line.split()[:4] for line in text.splitlines()] == [
        ["o/a:1", "1.2", "s", "2"],
        ["o/longer:1", "unchanged"],
    ]


FAKE = """\
import json, sys, tarfile
from pathlib import Path
words = sys.argv[1:]
if words[0] == "build":
    folder = Path(words[-1])
    listed = sorted(path.name for path in folder.iterdir())
    secret = next(word for word in words if word.startswith("--secret")).partition("src=")[2]
    with tarfile.open(secret) as tar:
        taken = tar.extractfile("pip.conf").read() if "LEAK" in (folder / "Dockerfile").read_text() else b""
    (Path(__file__).parent / "store").write_text(json.dumps([words, listed, taken.decode()]))
elif words[0] == "save":
    stored = Path(__file__).parent / "store"
    with tarfile.open(words[1], "w") as tar:
        tar.add(stored, "layer/store")
elif words == ["has", "b"] or words[0] == "pull" and words[1] != "unreachable":
    sys.exit(0)
else:
    print("a reason")
    sys.exit(3)
"""


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    """A fake engine whose image contains the list of files, and the secret if the Dockerfile contains LEAK."""
    script = tmp_path / "engine.py"
    script.write_text(FAKE)
    program = (sys.executable, str(script))
    return Engine(
        name="small",
        answers=program,
        build=(*program, "build"),
        has=lambda reference: [*program, "has", reference],
        pull=lambda reference: [*program, "pull", reference],
        save=lambda reference, path: [*program, "save", str(path), reference],
        environment={},
    )


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one module. Its wheel is built without a package index."""
    root = tmp_path / "project"
    for name in (*SOURCES, "images/broker", "images/operator"):
        (root / name).mkdir(parents=True)
        (root / name / "__init__.py").write_text("")
    (root / "images/common").mkdir()
    for name in {script for image in IMAGES for script in image.scripts}:
        (root / "images/common" / name).write_text("#!/bin/sh\n")
    for name in WHEEL_FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    for name in ("broker", "operator"):
        (root / "images" / name / "Dockerfile").write_text("FROM x\n")
    (root / "constraints.txt").write_text("click==8\n")
    (root / "pyproject.toml").write_text(
        '[project]\nname = "p"\nversion = "1"\ndependencies = ["click"]\n'
        '[project.optional-dependencies]\noperator = ["kopf"]\nconsole = ["jinja2"]\n'
    )

    def project_wheel(_: Path, folder: Path, log: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "p-1-py3-none-any.whl").write_text("wheel")

    monkeypatch.setattr(wheels, "project_wheel", project_wheel)
    return root


def asked(root: Path, *, force: bool = False, base_image: str = "b", name: str = "broker") -> Options:
    return Options(
        root=root,
        work=root.parent / "work",
        images=tuple(image for image in IMAGES if image.name == name),
        output=root.parent / "out",
        prefix="o",
        version="1",
        base=base_image,
        force=force,
    )


def content(archive: Path) -> list[object]:
    with tarfile.open(archive) as tar:
        file = tar.extractfile("layer/store")
        assert file is not None
        found = json.load(io.TextIOWrapper(file, "utf-8"))
    assert isinstance(found, list)
    return found


def unneeded() -> Engine:
    raise AssertionError("nothing has to be built")


def test_a_run_builds_and_the_next_one_has_nothing_to_do(project: Path, engine: Engine) -> None:
    printed: list[str] = []
    (built,) = Job(asked(project), lambda: engine, printed.append).run()
    assert (built.reference, built.was_fresh) == ("o/broker:1", False)
    assert built.archive is not None
    _, listed, _ = content(built.archive)
    assert isinstance(listed, list)
    assert set(listed) == {
        "Dockerfile", "__init__.py", "add-compiler", "add-user", "build-wheel", "constraints.txt", "make-venv",
        "requirements.txt", "source", "with-machine",
    }  # fmt: skip
    assert not list((project.parent / "work/folders").iterdir())
    (again,) = Job(asked(project), unneeded, printed.append).run()
    assert again.was_fresh
    assert printed[-1] == "broker: unchanged, so the archive is kept"


def test_an_image_without_the_core_gets_the_wheel_and_no_source(project: Path, engine: Engine) -> None:
    (built,) = Job(asked(project, name="operator"), lambda: engine, [].append).run()
    assert built.archive is not None
    _, listed, _ = content(built.archive)
    assert isinstance(listed, list)
    assert set(listed) == {
        "Dockerfile", "__init__.py", "add-user", "constraints.txt", "make-venv", "requirements.txt", "wheels",
        "with-machine",
    }  # fmt: skip


def test_a_second_run_waits_for_the_first(project: Path, engine: Engine) -> None:
    printed: list[str] = []
    work = asked(project).work
    work.mkdir()
    with (work / "lock").open("w") as lock, ThreadPoolExecutor() as pool:
        fcntl.flock(lock, fcntl.LOCK_EX)
        running = pool.submit(Job(asked(project), lambda: engine, printed.append).run)
        wait_until(lambda: bool(printed), what="the notice")
        assert printed == ["waiting for another build in the same folder ..."]
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert not running.result(60)[0].was_fresh


@pytest.mark.parametrize("path", ["broker/odradek/new.py", "constraints.txt", "images/broker/Dockerfile"])
def test_a_change_builds_anew(project: Path, engine: Engine, path: str) -> None:
    Job(asked(project), lambda: engine, [].append).run()
    (project / path).write_text("FROM changed\n")
    assert not Job(asked(project), lambda: engine, [].append).run()[0].was_fresh


def test_another_base_or_force_builds_anew(project: Path, engine: Engine) -> None:
    Job(asked(project), lambda: engine, [].append).run()
    assert not Job(asked(project, base_image="c"), lambda: engine, [].append).run()[0].was_fresh
    assert not Job(asked(project, base_image="c", force=True), lambda: engine, [].append).run()[0].was_fresh


def test_an_image_with_the_machines_settings_does_not_stay(project: Path, engine: Engine) -> None:
    (project / "images/broker/Dockerfile").write_text("FROM x\n# LEAK\n")
    with pytest.raises(BuildError, match=r"contains package settings of this machine.*layer/store"):
        Job(asked(project), lambda: engine, [].append).run()
    assert not list((project.parent / "out").iterdir())


def test_a_failure_names_the_log_and_shows_its_end(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"small failed; the end of its log .*a\.log:\n  a reason"):
        run(engine, engine.has("x"), tmp_path / "logs/a.log")


def test_a_base_that_cannot_be_pulled_names_the_ways_to_go_on(project: Path, engine: Engine) -> None:
    with pytest.raises(BuildError) as raised:
        Job(asked(project, base_image="unreachable"), lambda: engine, [].append).run()
    first, *others = str(raised.value).splitlines()
    assert first == "The base image unreachable is not on this machine and cannot be pulled. Either"
    assert "make images BASE=debian" in "".join(others)
    assert others[-1] == "  a reason", "the engine's own words follow"


def test_an_engine_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BuildError, match="install one of them"):
        find_engine()
    with pytest.raises(BuildError, match="podman does not work"):
        find_engine("podman")


def test_a_base_of_ones_own_needs_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(base.os, "geteuid", lambda: 1000)
    with pytest.raises(BuildError, match=f"--base {OWN_BASE} needs root"):
        base.make_base(tmp_path / "base.tar", [], tmp_path / "log")
