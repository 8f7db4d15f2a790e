"""Connect to services by name. Each has a folder, whose `connect.py` is imported on demand."""

from __future__ import annotations

import importlib

from trajkit.errors import RequestError
from trajkit.formats.validation.target import HOSTED
from trajkit.schema.base import JsonObject
from trajkit.training.hosted.service import Service


def connect(target: str, settings: JsonObject) -> Service:
    """Connect to a service, with its key in the environment.

    Args:
        target: Name of the service.
        settings: Earlier `Service.settings`, or those of the user; empty for the defaults.

    Raises:
        RequestError: There is no such service, or a setting is invalid. A missing key is reported by the
            first call.
    """
    apis = dict.fromkeys(service.api for service in HOSTED.values())
    if target not in apis:
        raise RequestError(f"no service {target!r}", hint=f"services: {', '.join(apis)}")
    module = importlib.import_module(f"trajkit.training.hosted.{target}.connect")
    service: Service = module.connect(settings)
    return service
