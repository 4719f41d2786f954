"""The entry point of the Spark image. It replaces itself with the program for its first argument.

`submit` runs spark-submit. `run MODULE ...` and `pipeline --spec FILE ...` run an application with its driver in this
pod: see `pyspark_odradek.pipelines.kubernetes_driver`. Any other first argument is executed as a command. Spark's
Kubernetes scheduler defines the interface of `driver` and `executor`: driver pods get `driver` and the options of
spark-submit, executor pods get `executor` and the environment variables below. If the user id has no name, as in some
clusters, it gets one, because Java's login needs a name.
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
"""Options of the executor's main class, and the environment variables with their values."""

IN_THIS_POD = "pyspark_odradek.pipelines.kubernetes_driver"
"""The module that runs an application as the driver in this pod."""

_JAVA_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")
NAME_WRAPPER = "libnss_wrapper.so"


def command(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the command to execute. Raises `SystemExit`, with a message, if arguments or a variable are missing."""
    home = environment.get("SPARK_HOME", "/opt/spark")
    if not arguments:
        raise SystemExit("An argument is missing: run, pipeline, submit, driver, executor, or a command.")
    first, rest = arguments[0], list(arguments[1:])
    if first in ("run", "pipeline"):
        return ["python3", "-m", IN_THIS_POD, *rest]
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
    """Return the Java command of an executor."""
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
    """Return the values of SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, ... in the order of their numbers."""
    found = ((_JAVA_OPTION.fullmatch(name), value) for name, value in environment.items())
    return [value for _, value in sorted((int(match.group(1)), value) for match, value in found if match)]


def needed(environment: Mapping[str, str], name: str) -> str:
    """Return the value of a variable. Raises `SystemExit` if it is not set."""
    value = environment.get(name)
    if not value:
        raise SystemExit(f"{name} is not set: Spark's Kubernetes scheduler sets it in the pods that it creates.")
    return value


def named(environment: Mapping[str, str], uid: int, gid: int) -> dict[str, str]:
    """Return the environment, changed such that a user id without a name has the name `spark`."""
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
    """Replace this process with the program."""
    environment = named(os.environ, os.getuid(), os.getgid())
    program = command(sys.argv[1:], environment)
    if shutil.which(program[0]) is None:
        raise SystemExit(
            f"{program[0]} is not installed in this image. Use run, pipeline, submit, driver, executor or a program."
        )
    os.execvpe(program[0], program, environment)


if __name__ == "__main__":
    main()
