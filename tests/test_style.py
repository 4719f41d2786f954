"""Finds odd words and phrases. The project writes in the style of the Kafka and Kubernetes documentation."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ODD = re.compile(
    r"\b(lest|whither|whence|thither|hither|thereof|wherein|whereof|heretofore|anew|nought|hindmost|whoever|learnt)\b"
    r"|\bof (theirs|hers|yours)\b"
    r"|\bwho it is\b"
    r"|\bwhat of (it|them|the)\b"
    r"|\b(is|are|was|were) (told|none of)\b"
    r"|\btold of\b"
    r"|\b(is|to be) had\b"
    r"|\bbrought (about|to)\b"
    r"|\bthat were all\b"
    r"|\bin (vain|a hurry)\b"
    r"|\bvouch(es|ed)? for\b"
    r"|\bstand(s|ing)? in for\b"
    r"|\b(lies about|held against|passed over|under way|to and fro|of no use)\b"
    r"|\b(befalls?|mends? itself|settles? it|goes away|sign of life|without a word)\b"
    r"|\b(enters|leaves): ",
    re.IGNORECASE,
)
TEXT = {".py", ".md", ".toml", ".yaml", ".yml", ".tpl", ".txt", ".sh", ""}
OTHERS = ("tests/e2e/kube/oldest/", "tests/e2e/kube/tools/", "LICENSE")
"""Files with texts from other projects."""


def test_no_odd_phrase() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    found = []
    for name in listed.decode().split("\0"):
        path = ROOT / name
        if not name or path == Path(__file__) or path.suffix not in TEXT or name.startswith(OTHERS):
            continue
        if not path.is_file():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = ODD.search(line)
            if match:
                found.append(f"{name}:{number}: {match.group()}: {line.strip()[:100]}")
    assert not found, "\n".join(found)
