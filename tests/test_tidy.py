"""Checks house rules: sizes, forbidden calls, pure modules, import contracts, and no local paths in tracked files."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = (
    "broker/odradek",
    "operator/odradek_operator",
    "spark/pyspark_odradek",
    "spark/odradek_demo",
    "broker/odradek_testkit",
    "operator/odradek_operator_testkit",
)
MODULE_LINES = 600
FUNCTION_LINES = 70
BANNED_IN_PURE = frozenset("asyncio socket ssl threading time random os kazoo uvloop kopf kubernetes".split()) | {
    "odradek.metrics"
}

PURE = """
base/errors base/error_kinds base/request_errors base/data_errors base/group_errors base/cluster_errors base/types
base/ports base/config base/fields/* base/setting_definitions base/settings_catalogue
base/topic_rules cluster compression protocol/* records/* timer/*
zk/layout zk/ownership zk/port classic/assignment classic/consumer_znodes classic/topic_filters classic/consumer_config
classic/producer_config znode zk/acl zk/security zk/security_digest
log/producers/producer_state log/producers/verification log/epoch_cache log/retention log/segments/transaction_index
log/compaction/cleaning_decisions log/compaction/offset_map log/compaction/filtering log/compaction/record_groups
replication/partition replication/isr replication/replica_requests replication/sessions/fetch_session
replication/sessions/follower_session replication/quota replication/sessions/resting replication/leader/awaited
controller/context controller/elections/election_rules controller/machines controller/plans controller/isr_rules
controller/broker_requests/request_batch controller/reassignment/reassignment_decisions controller/elections/candidates
controller/features controller/broker_requests/coalescing controller/broker_requests/old_versions
coordinator/coordinator_ports coordinator/append_errors coordinator/record_replay coordinator/groups/*
coordinator/transactions/transaction_values
coordinator/transactions/transaction_records coordinator/transactions/transaction_rules
coordinator/groups/consumer/consumer_values coordinator/groups/consumer/consumer_record_values
coordinator/groups/consumer/consumer_records coordinator/groups/consumer/reconciliation
coordinator/groups/consumer/consumer_assignors coordinator/groups/consumer/mixed_subscriptions
coordinator/groups/consumer/subscriptions coordinator/groups/consumer/consumer_rules
coordinator/groups/consumer/consumer_views coordinator/groups/consumer/migration
coordinator/groups/consumer/classic_members
coordinator/transactions/transaction_shard coordinator/transactions/sender_requests
coordinator/lag/lag_requests coordinator/lag/lag_values cli/groups/group_render cli/groups/reset_plans
cli/render_cluster console/console_settings console/json_paths console/message_query console/shown_bytes
cli/topics/topic_render cli/reassign/placement
cli/reassign/plan_files cli/reassign/throttles cli/reassign/move_progress
cli/perf/latencies cli/perf/meter
mirror/mirror_config mirror/mirror_plan mirror/following/mirrored_topics mirror/following/acl_rules mirror/mm2_records
mirror/offset_translation mirror/following/group_checkpoints
mirror/batch_rewriting mirror/byte_budget mirror/copy_positions mirror/owned_partitions
cli/records/record_input cli/records/record_templates cli/records/value_decoders
cli/records/last_records cli/records/consume_options cli/profiles/hidden_values
client/settings client/keywords client/admin_kinds client/extensions/* client/telemetry/client_metrics client/models
client/java_regex/*
client/metadata client/producer/partitioning client/producer/accumulator
client/producer/batch_builder client/producer/sequences client/consumer/fetched client/consumer/fetch_state
client/consumer/assignors client/consumer/assignor_values client/consumer/sticky_assignor client/consumer/range_assignor
client/consumer/group_protocol client/consumer/member_contract client/consumer/consumer_protocol/heartbeat_fields
client/consumer/consumer_protocol/heartbeat_errors
security/tls/der security/tls/pem security/tls/jks security/tls/pkcs12 security/tls/names
security/tls/java_patterns security/sasl/jaas security/sasl/mechanism security/principals security/addresses
security/acls/* security/quotas/* server/throttling/charges
""".split()
"""Pure modules: no I/O, no clock, no tasks, no randomness (the starred modules in docs/design/0001)."""

PURE_OPERATOR = """
crds/* objects/* lifecycle/* dashboards/* topics/topic_actions topics/zookeeper_state topics/topic_plan
topics/topic_decisions topics/topic_status kube/cluster/status_documents crds/fields crds/documents
kube/api/object_kinds kube/api/owners kube/operator_settings pipelines/* mirrors/*
security/client_connection plugin/roll_progress plugin/status_rows
""".split()
PURE_SPARK = """
offsets options/option_values options/source_options options/sink_options decoding/row_batches decoding/row_schema
source/pushed_filters sink/sink_schema sink/partitioning sink/arrow_strings sink/decisions observation/query_states
formats/* pipelines/pipeline_spec pipelines/driver_command pipelines/load_plan
source/stream_offsets
""".split()
WRITES_FILES = frozenset({"crds/generate_crds.py", "dashboards/generate_dashboards.py"})
"""Scripts of `make` among the operator's pure modules."""


def source_files() -> list[Path]:
    return sorted(path for source in SOURCES for path in (ROOT / source).rglob("*.py"))


def all_python() -> list[Path]:
    tests = [*ROOT.glob("*/tests/**/*.py"), *(ROOT / "tests").rglob("*.py")]
    return sorted({*source_files(), *tests})


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def pure_files() -> Iterator[Path]:
    for pattern in PURE:
        found = sorted((ROOT / "broker/odradek").glob(f"{pattern}.py"))
        assert found, f"the pure module {pattern} is gone: mend the list"
        yield from found
    for folder, patterns in ((ROOT / SOURCES[1], PURE_OPERATOR), (ROOT / SOURCES[2], PURE_SPARK)):
        for pattern in patterns:
            found = sorted(folder.glob(f"{pattern}.py"))
            assert found, f"the pure module {folder / pattern} is gone: mend the list"
            yield from (path for path in found if str(path.relative_to(folder)) not in WRITES_FILES)


@pytest.mark.parametrize("path", all_python(), ids=name_of)
def test_module_is_small(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= MODULE_LINES, f"{name_of(path)} has {lines} lines: split it by job"


@pytest.mark.parametrize("path", source_files(), ids=name_of)
def test_functions_are_short(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= FUNCTION_LINES, f"{name_of(path)}: {node.name} has {length} lines"


@pytest.mark.parametrize("path", source_files(), ids=name_of)
def test_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), f"{name_of(path)} has no docstring"


def imported(path: Path) -> Iterator[str]:
    """Yield the names that are imported at run time. Blocks under TYPE_CHECKING do not run."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            skipped.update(inner for statement in node.body for inner in ast.walk(statement))
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_pure_modules_import_nothing_impure() -> None:
    for path in pure_files():
        for module in imported(path):
            parts = module.split(".")
            hit = {".".join(parts[: count + 1]) for count in range(len(parts))} & BANNED_IN_PURE
            assert not hit, f"{name_of(path)} imports {module}: a pure module takes values and gives values"


@pytest.mark.parametrize("path", all_python(), ids=name_of)
def test_no_test_sleeps_or_skips(path: Path) -> None:
    if "tests" not in path.parts:
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        text = ast.unparse(node) if isinstance(node, ast.Call | ast.Attribute) else ""
        assert text not in ("pytest.mark.skip", "pytest.mark.xfail", "pytest.skip"), f"{name_of(path)} skips: {text}"
        assert not text.startswith("time.sleep("), f"{name_of(path)} sleeps: await a condition"


TYPED = ("server", "controller", "replication", "app")
"""Packages whose requests and responses have typed classes; see docs/design/0012."""


@pytest.mark.parametrize("package", TYPED)
def test_requests_and_responses_are_typed(package: str) -> None:
    for path in sorted((ROOT / "broker/odradek" / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.arg) and node.arg in ("request", "response", "answer") and node.annotation:
                assert ast.unparse(node.annotation) != "Any", f"{name_of(path)}: {node.arg} needs its class"
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr"):
                text = ast.unparse(node)
                assert not isinstance(node.args[1], ast.Constant), f"{name_of(path)}: {text} hides what is read"


def test_import_contracts_hold() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run([lint], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [ROOT / name for name in listed.decode().split("\0") if name]


def test_nothing_of_one_machine_is_tracked() -> None:
    home = re.compile(rb"/(?:home|root|Users|work)/[A-Za-z0-9_.-]+/")
    for path in tracked_files():
        if path.exists() and path != Path(__file__):
            found = home.search(path.read_bytes())
            assert not found, f"{name_of(path)} names a path of one machine: {found.group() if found else b''!r}"


def test_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE)) - {"check-python", "check-java"}
    documented = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
    assert targets == documented
