"""The services by name. Each module has `connect(settings) -> Service`, and is imported when it is wanted."""

from __future__ import annotations

import importlib

from trajkit.errors import RequestError
from trajkit.formats.validation.target import HOSTED
from trajkit.schema.base import JsonObject
from trajkit.training.hosted.service import Service


def connect(target: str, settings: JsonObject) -> Service:
    """A service by its name, with the key that the environment has for it.

    Args:
        target: What a user calls it.
        settings: As `Service.settings` gave them, or those that a user chose; empty for the defaults.

    Raises:
        RequestError: There is no such service, or a setting makes no sense. That a key is missing is told
            later, by the first call.
    """
    apis = dict.fromkeys(service.api for service in HOSTED.values())
    if target not in apis:
        raise RequestError(f"no service {target!r}", hint=f"services: {', '.join(apis)}")
    module = importlib.import_module(f"trajkit.training.hosted.{target}")
    service: Service = module.connect(settings)
    return service
