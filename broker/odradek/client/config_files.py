"""Files of client properties: a path, or a profile in the home directory.

The command line, the exporter and the Spark source read them, so one file describes how to log in to a cluster. Their
names are Kafka's, as in the files for `--command-config` of Kafka's tools.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from odradek.base.errors import ConfigError
from odradek.base.setting_definitions import parse_properties

CONFIG_VARIABLE: Final = "ODRADEK_COMMAND_CONFIG"
"""Environment variable with the file or profile to use when none is given."""
MAX_FILE_BYTES: Final = 1 << 20
POD_LOGIN: Final = Path("/var/run/secrets/odradek.dev")
"""Where a pod mounts a token of its ServiceAccount for a cluster, as `token`, and the authority of its brokers, as
`ca.crt`."""
_PROFILE: Final = re.compile(r"[A-Za-z0-9_-]+")


def config_path(name: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the file that a path or a profile means. The file may not exist.

    A name of letters, digits, `_` and `-` is a profile, unless there is a file of that name. The profile `prod` is
    `$XDG_CONFIG_HOME/odradek/prod.properties`, by default `~/.config/odradek/prod.properties`.
    """
    path = Path(name)
    if _PROFILE.fullmatch(name) is None or path.exists():
        return path
    folder = environment.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder, "odradek", f"{name}.properties")


def pod_login(folder: Path = POD_LOGIN) -> dict[str, str]:
    """Return the client properties with which a pod logs in as its ServiceAccount; none if it mounts no token.

    The kubelet renews the token. Clients read the file at each login.
    """
    token, authority = folder / "token", folder / "ca.crt"
    if not token.exists():
        return {}
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority)} if authority.exists() else {}
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"file://{token}",
        **trust,
    }


def read_config_file(name: str, *, option: str) -> dict[str, str]:
    """Return the client properties of a path or profile. `option` names the setting in errors.

    Raises `ConfigError` if the file cannot be read, is longer than 1 MiB, or is no text in UTF-8.
    """
    path = config_path(name)
    shown = f"{option} {name}" if str(path) == name else f"{option} {name}: the profile {path}"
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise ConfigError(f"{shown} is longer than {MAX_FILE_BYTES} bytes: it is no file of properties")
        return parse_properties(data.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"{shown} is not a text in UTF-8") from error
    except OSError as error:
        raise ConfigError(f"{shown} cannot be read: {error.strerror}") from error
