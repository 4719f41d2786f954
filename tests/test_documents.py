"""Files and names that the documents refer to exist, and links to files are valid."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FOLDERS = (
    ROOT,
    ROOT / "broker/odradek",
    ROOT / "operator/odradek_operator",
    ROOT / "spark/pyspark_odradek",
    ROOT / "spark/odradek_demo",
)
ARCHITECTURE = ROOT / "docs/architecture.md"


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def found(reference: str) -> Path | None:
    """Return the file of a reference, which is relative to the root of the repository or of a package."""
    return next((folder / reference for folder in FOLDERS if (folder / reference).exists()), None)


def defined(path: Path) -> set[str]:
    """Return the top-level names of a module, and `Class.name` for members of its classes."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{inner}" for statement in node.body for inner in bound(statement)}
        names |= bound(node)
    return names


def bound(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return {node.target.id}
    return set()


def test_the_architecture_names_what_exists() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    references = re.findall(r"`([\w/]+\.py)(?:::([\w.]+))?`", text)
    assert len(references) > 50
    missing = []
    for file, name in references:
        path = found(file)
        if path is None or (name and name not in defined(path)):
            missing.append(f"{file}::{name}")
    assert missing == []


def test_the_architecture_names_every_package() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    for folder in FOLDERS[1:3]:
        packages = {path.parent.name for path in folder.glob("*/__init__.py")} - {"testing"}
        assert not {name for name in packages if f"| `{name}` |" not in text}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_to_files(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{name_of(document)} links to {target}, which does not exist"


def test_the_statements_of_the_founding_documents_name_tests_that_exist() -> None:
    text = (ROOT / "docs/design/0031-founding-documents.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (?:[^|]+\| ){2}(.+) \|$", text, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    missing = []
    for number, proof in rows:
        references = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", proof)
        assert references, f"statement {number} has no test"
        for file, name in references:
            path = ROOT / file if file.startswith("spark/tests/") else ROOT / "broker/tests" / file
            if not path.exists() or (name and name not in defined(path)):
                missing.append(f"{number}: {file}::{name}")
    assert not missing
