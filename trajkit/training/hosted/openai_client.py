"""The `openai` package's client for the time of a question: its errors become ours, its answers JSON."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from trajkit._core.lazy import need
from trajkit._core.settings import secret_from_environment
from trajkit.formats.validation.target import HostedService
from trajkit.training.hosted.failure import MissingKey, Unreachable
from trajkit.training.hosted.openai_failure import Failures
from trajkit.training.hosted.service import PLAIN
from trajkit.training.hosted.wire import client, harmless

if TYPE_CHECKING:
    from openai import OpenAI

_SHORT_S = 60.0


class Client:
    """Talks to one service with its key.

    Args:
        profile: Who it is.
        url: The address of the API, up to `/v1`.
    """

    def __init__(self, profile: HostedService, url: str) -> None:
        self._variable, self._url = profile.key_variable, url
        self._key = secret_from_environment(profile.key_variable)
        self.failures = Failures(url, profile.key_variable, self._key, profile.rows.name)
        """What becomes of the client's errors."""

    @contextlib.contextmanager
    def talk(self, what: str, *, max_retries: int = 2, timeout_s: float = _SHORT_S) -> Iterator[OpenAI]:
        """A client for the time of a block, whose errors become ours."""
        openai = need("openai", extra="openai")
        if self._key is None:
            raise MissingKey(
                f"{self._variable} is not set: it holds the key for {self._url}",
                hint=f"export {self._variable}=… in this terminal; it is written down nowhere",
            )
        with openai.OpenAI(
            base_url=self._url,
            api_key=self._key.get_secret_value(),
            max_retries=max_retries,
            timeout=timeout_s,
            http_client=client(openai.DefaultHttpxClient, self._key),
        ) as talking:
            try:
                yield talking
            # none is a cause of ours: the request in it holds the key
            except openai.APIStatusError as error:
                raise self.failures.refusal(error, what) from None
            except openai.APIConnectionError as error:
                if isinstance(error.__cause__, Unreachable):
                    raise error.__cause__ from None
                raise self.failures.silence(error, what) from None
            except (openai.APIError, ValueError, KeyError, AttributeError, TypeError) as error:
                # the package takes JSON of another shape for its own objects
                raise self.failures.nonsense(what, str(getattr(error, "doc", error))) from None

    def masked(self, content: bytes) -> bytes:
        """The content of a file without the key."""
        return harmless(content, self._key)

    def read(self, answer: Any, what: str) -> Mapping[str, Any]:
        """An answer as JSON. The client checks nothing, and gives text for what is no object."""
        found = answer.to_dict(mode="json", warnings=False) if hasattr(answer, "to_dict") else answer
        if not isinstance(found, Mapping):
            raise self.failures.nonsense(what, str(answer))
        if not isinstance(found.get("id"), str) or not re.fullmatch(PLAIN, found["id"]):
            raise self.failures.nonsense(what, json.dumps(dict(found), ensure_ascii=False))
        return found


def first_page(listing: Any) -> list[Any]:
    """What the first page of a listing has."""
    data = getattr(listing, "data", None)
    return data if isinstance(data, list) else []


def objects(listing: Iterable[Any], most: int) -> Iterator[Mapping[str, Any]]:
    """Everything of a listing, page after page, up to so many.

    Raises:
        KeyError: It is no listing: what it would have listed may be there.
    """
    data = getattr(listing, "data", None)
    if not isinstance(data, list) and (data is not None or "data" not in _fields_of(listing)):
        raise KeyError("data")
    seen: set[object] = set()
    for item in islice(listing, most):
        found = item.to_dict(mode="json", warnings=False) if hasattr(item, "to_dict") else {}
        if found.get("id") in seen:
            return  # the service gives the same page again and again
        seen.add(found.get("id"))
        yield found


def _fields_of(answer: Any) -> Collection[str]:
    """The fields that an answer has; none where it is no object."""
    fields: Collection[str] = getattr(answer, "model_fields_set", ())
    return fields
