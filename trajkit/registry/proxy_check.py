"""Let the real LiteLLM proxy, if installed, serve a configuration before it replaces the old one."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from trajkit.errors import ConfigError, ServiceError
from trajkit.registry.proxy_config import ProxyConfig

PROGRAM = "litellm"
_START_S = 120.0
_PLACEHOLDER = "placeholder"
_VARIABLE = re.compile(r"os\.environ/(\w+)")
_SECRET = re.compile("key|token|secret|password|credential", re.IGNORECASE)
_LEFT_OUT = (
    "check_provider_endpoint",
    "callbacks",
    "success_callback",
    "failure_callback",
    "service_callback",
    "audit_log_callbacks",
)
_DATABASES = ("DATABASE_URL", "DIRECT_URL", "REDIS_URL", "REDIS_HOST", "LITELLM_MASTER_KEY")


def find_program() -> str | None:
    """The proxy's program on the PATH; None if there is none."""
    return shutil.which(PROGRAM)


def check_serves(configuration: ProxyConfig, program: str) -> tuple[str, ...]:
    """Start the proxy with a copy of a configuration, and list its models.

    The copy has no database, no cache, no callback, and no key of the proxy: the check writes nothing, and
    reaches no other server. Keys are replaced by placeholders, and so is a variable that is missing here.

    Args:
        configuration: The configuration to check.
        program: The proxy's program.

    Returns:
        Names of the environment variables that got a placeholder.

    Raises:
        ConfigError: The proxy does not start, or does not serve the models.
        ServiceError: It did not answer in time.
    """
    data = _harmless(configuration)
    named = set(_VARIABLE.findall(json.dumps(data, default=str)))
    missing = sorted(named - os.environ.keys() - {"LITELLM_MASTER_KEY"})
    environment = {name: value for name, value in os.environ.items() if name not in _DATABASES}
    environment |= dict.fromkeys((*missing, *filter(_SECRET.search, named)), _PLACEHOLDER)
    environment |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}
    environment.pop("PYTHONPATH", None)  # that of this process, not of the proxy's environment
    environment["LITELLM_MASTER_KEY"] = key = f"sk-{secrets.token_hex(16)}"
    wanted = {str(each.get("model_name")) for each in configuration.models}
    with tempfile.TemporaryDirectory(prefix="trajkit-") as name:
        folder = Path(name)
        (folder / "config.yaml").write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        command = [
            program,
            "--config",
            str(folder / "config.yaml"),
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            served = _served(process, port, key, folder / "log")
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    if lacking := sorted(one for one in wanted - served if "*" not in one):
        raise ConfigError(
            f"the proxy does not serve {', '.join(lacking)} with this configuration",
            hint="nothing was changed",
        )
    return tuple(missing)


def _harmless(configuration: ProxyConfig) -> dict[str, Any]:
    """Return the content that the proxy loads: models and routing, with the models of included files."""
    data = configuration.data
    kept = {
        name: data[name]
        for name in ("router_settings", "litellm_settings")
        if isinstance(data.get(name), dict)
    }
    if "litellm_settings" in kept:
        kept["litellm_settings"] = {
            name: value
            for name, value in kept["litellm_settings"].items()
            if name not in _LEFT_OUT and not name.startswith("cache")
        }
    if "router_settings" in kept:
        kept["router_settings"] = {
            name: value for name, value in kept["router_settings"].items() if not name.startswith("redis")
        }
    general = {"master_key": "os.environ/LITELLM_MASTER_KEY"}
    return {"model_list": configuration.models, **kept, "general_settings": general}


def _served(process: subprocess.Popen[bytes], port: int, key: str, log: Path) -> set[str]:
    """Return the models that the proxy offers, once it answers."""
    deadline = time.monotonic() + _START_S
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/models", headers={"Authorization": f"Bearer {key}"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ConfigError(
                f"the proxy refuses the configuration: {_last(log)}", hint="nothing was changed"
            )
        try:
            with opener.open(request, timeout=5) as answer:
                document: Mapping[str, Any] = json.load(answer)
            return {str(each.get("id")) for each in document.get("data", ())}
        except (urllib.error.URLError, OSError, ValueError):
            time.sleep(0.2)
    raise ServiceError(f"the proxy did not answer within {_START_S:.0f} s: {_last(log)}")


def _last(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1].strip()[-300:] if lines else "it printed nothing"
