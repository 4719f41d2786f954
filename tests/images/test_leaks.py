"""Tests the scan of images: it finds secrets in files, names, links and the history, and reports nothing else."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from images.builder import leaks as module
from images.builder.leaks import Leak, leaks, private_hosts

NEEDLE = b"mark-1234"


def tar_of(files: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
        for name, target in (links or {}).items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return buffer.getvalue()


def image(path: Path, *layers: bytes, history: str = "RUN make-venv") -> Path:
    """Write a docker-archive with these layers."""
    config = json.dumps({"history": [{"created_by": history}]}).encode()
    named = {f"{number:064x}.tar": layer for number, layer in enumerate(layers)}
    manifest = json.dumps([{"Config": "c.json", "Layers": list(named)}]).encode()
    path.write_bytes(tar_of({"manifest.json": manifest, "c.json": config, **named}))
    return path


CLEAN = tar_of({"etc/passwd": b"root", "usr/bin/x": bytes(5000)}, {"bin": "usr/bin"})


def test_a_clean_image_is_clean(tmp_path: Path) -> None:
    assert leaks(image(tmp_path / "i.tar", CLEAN, CLEAN), {NEEDLE}) == []


@pytest.mark.parametrize(
    ("layer", "place"),
    [
        (tar_of({"etc/pip.conf": b"# mark-1234\n"}), "etc/pip.conf"),
        (tar_of({"deep/down/binary": bytes(9000) + NEEDLE}), "deep/down/binary"),
        (tar_of({"tmp/mark-1234": b""}), "tmp/mark-1234 (its name)"),
        (tar_of({}, {"link": "/tmp/mark-1234"}), "link (its name)"),
        (gzip.compress(tar_of({"etc/apt.conf": NEEDLE})), "etc/apt.conf"),
    ],
)
def test_what_a_layer_holds_is_found(tmp_path: Path, layer: bytes, place: str) -> None:
    (found,) = leaks(image(tmp_path / "i.tar", CLEAN, layer), {NEEDLE, b"else"})
    assert found == Leak(f"{1:064x}.tar: {place}", NEEDLE)


def test_what_the_history_holds_is_found(tmp_path: Path) -> None:
    found = leaks(image(tmp_path / "i.tar", CLEAN, history="RUN pip --index-url mark-1234"), {NEEDLE})
    assert found == [Leak("c.json", NEEDLE)]


def test_a_file_that_a_later_layer_hides_is_found(tmp_path: Path) -> None:
    assert leaks(image(tmp_path / "i.tar", tar_of({"a": NEEDLE}), tar_of({".wh.a": b""})), {NEEDLE})


@given(st.integers(0, 40), st.integers(1, 12))
def test_pieces_do_not_hide_what_lies_across_them(before: int, piece: int) -> None:
    original, module.PIECE = module.PIECE, piece  # type: ignore[misc]
    try:
        found = list(module._contained(io.BytesIO(b"m" * before + NEEDLE + b"x"), (NEEDLE, b"absent")))
    finally:
        module.PIECE = original  # type: ignore[misc]
    assert found == [NEEDLE]


def test_hosts_that_nobody_else_knows() -> None:
    texts = [
        "https://user:word@mirror.example/simple https://pypi.org/simple",
        'Acquire::http::Proxy "http://proxy.example:3128";',
        "URIs: http://deb.debian.org/debian http://ftp.de.debian.org/debian",
        "no address",
    ]
    assert private_hosts(texts) == {b"mirror.example", b"proxy.example"}
