"""The console of the chart: its arguments are those of `odradek console`, and its properties are accepted."""

from __future__ import annotations

from typing import Any

import pytest

from chart_files import Object, rendered
from odradek.base.setting_definitions import parse_properties
from odradek.cli.console_command import console
from odradek.console.console_settings import ConsoleSettings


def of_console(kind: str) -> Object:
    """The object of the console in the rendering with everything."""
    label = "app.kubernetes.io/component"
    found = rendered("everything")
    (one,) = [each for each in found if each["kind"] == kind and each["metadata"]["labels"].get(label) == "console"]
    return one


@pytest.fixture
def arguments() -> dict[str, Any]:
    """The parsed arguments of the container."""
    (container,) = of_console("Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["odradek", "console"]
    given = [argument for argument in container["args"] if not argument.startswith("--command-config=")]
    return dict(console.make_context("console", given).params)


def test_the_arguments_and_properties_are_accepted(arguments: dict[str, Any]) -> None:
    properties = parse_properties(of_console("ConfigMap")["data"]["console.properties"])
    settings = ConsoleSettings(
        properties=properties,
        host=arguments["host"],
        host_names=arguments["host_names"],
        certificate=arguments["tls_certificate"],
        key=arguments["tls_key"],
        allow_changes=arguments["allow_changes"],
    )
    assert settings.needs_login and settings.uses_https and settings.allow_changes
    assert settings.mechanisms == ("SCRAM-SHA-512",)
    service = of_console("Service")["metadata"]
    assert {f"{service['name']}.{service['namespace']}.svc", "console.example.org"} <= {*settings.host_names}


def test_files_are_mounted_where_the_arguments_look_for_them() -> None:
    spec = of_console("Deployment")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {"/etc/odradek/console", "/etc/odradek/ca", "/etc/odradek/tls"} <= mounts
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    assert spec["automountServiceAccountToken"] is False


def test_the_service_leads_to_the_console() -> None:
    labels = of_console("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert of_console("Service")["spec"]["selector"].items() <= labels.items()
    assert of_console("Service")["spec"]["ports"] == [{"name": "web", "port": 443, "targetPort": "web"}]


@pytest.mark.parametrize("name", ["default", "namespaced"])
def test_there_is_no_console_by_default(name: str) -> None:
    assert not [each for each in rendered(name) if "console" in each["metadata"]["name"]]
