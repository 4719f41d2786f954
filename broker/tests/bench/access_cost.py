"""Measures what access rules and quotas cost on the path of a request: CPU time of the broker per Produce request.

Run it with `PYTHONPATH=.compiled .venv/bin/python broker/tests/bench/access_cost.py`, after `make compiled`. 200
connections send requests of one 100-byte record (the client of the scenario `busy-200`) to four brokers in turn: one
without an authorizer, one with 10 and one with 10,000 access rules, and one with these and quotas of bytes and of
request time that are never reached. Only one of them works at a time. Rules are for other topics, other users and
prefixes, and one allows the requests.

Prints the microseconds of CPU per request, the median of the rounds, and the quotient to the first.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click
from comparison.figures import OURS
from comparison.processes import Meter
from comparison.systems import System, running
from comparison.workloads.base import Bench
from comparison.workloads.producing import ProduceBusy

from odradek import BlockingClient
from odradek.security.acls.model import (
    AclBinding,
    AclOperation,
    AclPermission,
    AclRule,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.security.principals import USER, Principal
from odradek.security.quotas.quota_model import QuotaEntity, QuotaKind

AUTHORIZER: Final = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
CASES: Final[Mapping[str, tuple[int | None, bool]]] = {
    "no authorizer": (None, False),
    "10 rules": (10, False),
    "10,000 rules": (10_000, False),
    "10,000 rules and two quotas": (10_000, True),
}
"""The number of rules, None without an authorizer, and whether there are quotas."""
ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
PLENTY: Final = 1e12
AT_ONCE: Final = 1_000


@click.command()
@click.option("--requests", default=200_000, show_default=True, help="Requests in each run.")
@click.option("--rounds", default=3, show_default=True, help="Counted runs of each broker.")
def main(*, requests: int, rounds: int) -> None:
    """Measure the CPU time of Produce requests with access rules and quotas, and without."""
    work = ProduceBusy(requests=requests, connections=200, window=5, record_bytes=100)
    found: dict[str, list[float]] = {case: [] for case in CASES}
    with ExitStack() as everything:
        benches = {}
        for case, (rules, has_quotas) in CASES.items():
            properties = {} if rules is None else AUTHORIZER
            system = everything.enter_context(running(OURS, 1, properties, jars=Path()))
            prepare(system, rules or 0, has_quotas=has_quotas)
            benches[case] = Bench(system, Path(), 120.0, everything.enter_context(ExitStack()), case)
            work.prepare(benches[case])
        for number in range(-1, rounds):
            for case, bench in benches.items():
                work.before(bench, number)
                with Meter(lambda bench=bench: bench.system.pids) as meter:  # type: ignore[misc]
                    figures = work.run(bench, number)
                work.after(bench, number)
                if number >= 0:
                    found[case].append(1e6 * meter.figures()["cpu_s"] / figures["records"])
    base = statistics.median(found["no authorizer"])
    for case, values in found.items():
        each = statistics.median(values)
        click.echo(
            f"{case}: {each:.2f} us of CPU per request ({min(values):.2f} to {max(values):.2f}), {each / base:.2f}"
        )


def prepare(system: System, rules: int, *, has_quotas: bool) -> None:
    """Create access rules, of which the last one allows the requests of this benchmark, and quotas."""
    with BlockingClient(system.bootstrap) as client:
        bindings = [*others(rules - 1), allowing()] if rules else []
        for first in range(0, len(bindings), AT_ONCE):
            client.admin.create_acls(bindings[first : first + AT_ONCE])
        if has_quotas:
            quotas = {QuotaKind.PRODUCER_BYTE_RATE: PLENTY, QuotaKind.REQUEST_PERCENTAGE: PLENTY}
            client.admin.alter_client_quotas({QuotaEntity(user=ANONYMOUS.name): quotas})


def others(count: int) -> Iterable[AclBinding]:
    """Return rules that do not concern the requests: by turns for another topic, another user and a prefix."""
    for number in range(count):
        kind = number % 3
        pattern = PatternType.PREFIXED if kind == 2 else PatternType.LITERAL
        name = "*" if kind == 1 and pattern is PatternType.LITERAL else f"other-{number}"
        principal = Principal(USER, f"user-{number}") if kind else ANONYMOUS
        rule = AclRule(principal, AclPermission.ALLOW, AclOperation.WRITE)
        yield AclBinding(ResourcePattern(ResourceType.TOPIC, name, pattern), rule)


def allowing() -> AclBinding:
    """Return the rule that allows the requests."""
    rule = AclRule(ANONYMOUS, AclPermission.ALLOW, AclOperation.ALL)
    return AclBinding(ResourcePattern(ResourceType.TOPIC, "*"), rule)


if __name__ == "__main__":
    main()
