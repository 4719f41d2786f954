"""The program of `helm test`. It checks that the API server serves the resources, and that the operator is ready.

Arguments: the URL of the API server, and that of the operator. Exit code 1, with a message for each problem, if a check
fails. It only needs Python's standard library, so that it also works if the image is not that of the operator.
"""

import json
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
WANTED = {"clusters", "clusters/status", "topics", "topics/status", "users", "users/status"}
PATIENCE_SECONDS = 30.0
"""How long to retry. The API server serves new definitions after a moment, and a new operator waits up to 15 seconds
for the Leases of an operator that was killed."""


def fetch(url: str) -> bytes:
    """Return the body at `url`. Requests over TLS use the token of the pod's account. Raises `OSError` for every
    failure."""
    request = urllib.request.Request(url)
    context = None
    if url.startswith("https:"):
        context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        request.add_header("Authorization", f"Bearer {(ACCOUNT / 'token').read_text().strip()}")
    with urllib.request.urlopen(request, timeout=10, context=context) as answer:
        return bytes(answer.read())


def reason(error: OSError) -> str:
    """Return the reason of a failure in one line."""
    if isinstance(error, urllib.error.HTTPError):
        return f"{error.code} {error.read(200).decode(errors='replace').strip()}"
    return str(error)


def resources_missing(api: str) -> str | None:
    """Return a message if the API server does not serve the resources, or None."""
    try:
        served = {entry["name"] for entry in json.loads(fetch(f"{api}/apis/odradek.dev/v1"))["resources"]}
    except OSError as error:
        return (
            f"The API server does not serve odradek.dev/v1 ({reason(error)}): check that the resource definitions are "
            "installed."
        )
    missing = ", ".join(sorted(WANTED - served))
    if not missing:
        return None
    return (
        f"The API server serves odradek.dev/v1 without {missing}: check that the resource definitions are those of "
        "this version."
    )


def operator_idle(operator: str) -> str | None:
    """Return a message if the operator does not serve any namespace, or None.

    The request may reach a replica that is not active. The next attempt may then reach another one.
    """
    try:
        fetch(f"{operator}/readyz")
    except OSError as error:
        return f"The operator at {operator} is not ready ({reason(error)}): check its log with kubectl logs."
    try:
        sys.stdout.write(fetch(f"{operator}/leader").decode(errors="replace"))
    except OSError as error:
        return (
            f"The operator at {operator} is ready but serves no namespace ({reason(error)}). If the answer names "
            "another operator, that one serves the same namespaces: uninstall one of the two releases, or set "
            "different watchNamespaces."
        )
    return None


def main(arguments: list[str], patience: float = PATIENCE_SECONDS) -> int:
    """Repeat the checks until they succeed or `patience` seconds have passed. Return the exit code."""
    api, operator = arguments
    until = time.monotonic() + patience
    while True:
        problems = [sentence for sentence in (resources_missing(api), operator_idle(operator)) if sentence]
        if not problems:
            sys.stdout.write("The API server serves the resources, and the operator is ready.\n")
            return 0
        if time.monotonic() >= until:
            sys.stderr.write("".join(f"{sentence}\n" for sentence in problems))
            return 1
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
