"""What `helm test` runs: the API server serves the resources, and the operator is ready and serves its namespaces.

Arguments: the URL of the API server and that of the operator. Needs nothing but Python: the test's pod has the
operator's image, but must tell what is wrong even when that is another one. Exit code 1 and one sentence for each thing
that is amiss.
"""

import json
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
WANTED = {"clusters", "clusters/status", "topics", "topics/status"}
PATIENCE_SECONDS = 30.0
"""A fresh operator is given this long: new definitions are served after a moment, and the Leases of an operator that
was killed end after 15 seconds."""


def fetch(url: str) -> bytes:
    """The body at `url`, with the pod's account where it speaks TLS. Raises `OSError` for every failure."""
    request = urllib.request.Request(url)
    context = None
    if url.startswith("https:"):
        context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        request.add_header("Authorization", f"Bearer {(ACCOUNT / 'token').read_text().strip()}")
    with urllib.request.urlopen(request, timeout=10, context=context) as answer:
        return bytes(answer.read())


def reason(error: OSError) -> str:
    """One line of why."""
    if isinstance(error, urllib.error.HTTPError):
        return f"{error.code} {error.read(200).decode(errors='replace').strip()}"
    return str(error)


def resources_missing(api: str) -> str | None:
    """What the API server lacks."""
    try:
        served = {entry["name"] for entry in json.loads(fetch(f"{api}/apis/odradek.dev/v1"))["resources"]}
    except OSError as error:
        return f"The API server does not serve odradek.dev/v1 ({reason(error)}): are the definitions installed?"
    missing = ", ".join(sorted(WANTED - served))
    return f"The API server serves odradek.dev/v1 without {missing}: are the definitions old?" if missing else None


def operator_idle(operator: str) -> str | None:
    """Why the operator serves nothing. Where one of several replicas stands by, the next attempt may reach another."""
    try:
        fetch(f"{operator}/readyz")
    except OSError as error:
        return f"The operator at {operator} is not ready ({reason(error)}): see its log with kubectl logs."
    try:
        sys.stdout.write(fetch(f"{operator}/leader").decode(errors="replace"))
    except OSError as error:
        return (
            f"The operator at {operator} is ready but serves nothing ({reason(error)}). If it names another operator, "
            "that one serves the same namespaces: uninstall one of the two releases, or give each its own "
            "watchNamespaces."
        )
    return None


def main(arguments: list[str], patience: float = PATIENCE_SECONDS) -> int:
    """Ask until all is well or `patience` seconds have passed; the exit code."""
    api, operator = arguments
    until = time.monotonic() + patience
    while True:
        amiss = [sentence for sentence in (resources_missing(api), operator_idle(operator)) if sentence]
        if not amiss:
            sys.stdout.write("The resources are served and the operator is ready.\n")
            return 0
        if time.monotonic() >= until:
            sys.stderr.write("".join(f"{sentence}\n" for sentence in amiss))
            return 1
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
