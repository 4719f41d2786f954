"""Becomes what Spark on Kubernetes asks an image for: `driver`, `executor`, or `submit`; anything else runs as it is.

Enters: arguments and environment, as Spark's Kubernetes scheduler sets them in the pods that it makes. Leaves: another
program in this process's place. The interface is Spark's: its driver pods get `driver` and the options of spark-submit,
its executor pods get `executor` and the variables below. A user id without a name, as some clusters assign one, gets
a name: Java's login fails without.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import sys
from collections.abc import Mapping, Sequence

EXECUTOR = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
EXECUTOR_OPTIONS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
"""Options of the executor's main class, and the variable that has each."""

_JAVA_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")
NAME_WRAPPER = "libnss_wrapper.so"


def command(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The program to become. `SystemExit` with a sentence when a variable is missing."""
    home = environment.get("SPARK_HOME", "/opt/spark")
    if not arguments:
        raise SystemExit("Say what to run: driver, executor, submit, or a program with its arguments.")
    first, rest = arguments[0], list(arguments[1:])
    if first == "submit":
        return [f"{home}/bin/spark-submit", *rest]
    if first == "driver":
        address = needed(environment, "SPARK_DRIVER_BIND_ADDRESS")
        return [
            f"{home}/bin/spark-submit",
            "--conf",
            f"spark.driver.bindAddress={address}",
            "--conf",
            f"spark.executorEnv.SPARK_DRIVER_POD_IP={address}",
            "--deploy-mode",
            "client",
            *rest,
        ]
    if first == "executor":
        return executor(home, environment)
    return list(arguments)


def executor(home: str, environment: Mapping[str, str]) -> list[str]:
    """Java with the executor's main class."""
    java_home = environment.get("JAVA_HOME")
    memory = needed(environment, "SPARK_EXECUTOR_MEMORY")
    parts = (environment.get("SPARK_CONF_DIR", f"{home}/conf"), environment.get("SPARK_CLASSPATH"), f"{home}/jars/*")
    options = [option for name, var in EXECUTOR_OPTIONS.items() for option in (name, needed(environment, var))]
    return [
        f"{java_home}/bin/java" if java_home else "java",
        *java_options(environment),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        ":".join(part for part in parts if part),
        EXECUTOR,
        *options,
    ]


def java_options(environment: Mapping[str, str]) -> list[str]:
    """The values of SPARK_JAVA_OPT_0, _1, ... in the order of their numbers."""
    found = ((_JAVA_OPTION.fullmatch(name), value) for name, value in environment.items())
    return [value for _, value in sorted((int(match.group(1)), value) for match, value in found if match)]


def needed(environment: Mapping[str, str], name: str) -> str:
    """A variable's value; `SystemExit` when it is not set."""
    value = environment.get(name)
    if not value:
        raise SystemExit(f"{name} is not set: Spark's Kubernetes scheduler sets it in the pods that it makes.")
    return value


def named(environment: Mapping[str, str], uid: int, gid: int) -> dict[str, str]:
    """The environment in which a user id without a name has one: `spark`; unchanged when it has."""
    try:
        pwd.getpwuid(uid)
    except KeyError:
        folder = environment.get("TMPDIR", "/tmp")
        passwd, group = f"{folder}/passwd-{uid}", f"{folder}/group-{uid}"
        with open(passwd, "w", encoding="ascii") as file:
            file.write(f"spark:x:{uid}:{gid}:spark:{folder}:/usr/sbin/nologin\n")
        with open(group, "w", encoding="ascii") as file:
            file.write(f"spark:x:{gid}:\n")
        return {**environment, "LD_PRELOAD": NAME_WRAPPER, "NSS_WRAPPER_PASSWD": passwd, "NSS_WRAPPER_GROUP": group}
    return dict(environment)


def main() -> None:
    """Become it."""
    environment = named(os.environ, os.getuid(), os.getgid())
    program = command(sys.argv[1:], environment)
    if shutil.which(program[0]) is None:
        raise SystemExit(f"{program[0]} is no program of this image: driver, executor and submit are its own words.")
    os.execvpe(program[0], program, environment)


if __name__ == "__main__":
    main()
