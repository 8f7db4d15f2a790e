"""A gateway elsewhere, and the Hugging Face Hub: do they answer, and know this token?"""

from __future__ import annotations

import os
from http import HTTPStatus
from typing import Any

from pydantic import SecretStr

from trajkit._core.outside import json_from_outside
from trajkit._core.secrets import hidden
from trajkit._core.settings import secret_from_environment
from trajkit.commands.checkup.address import UNREACHABLE, Answer, ask, shown, why
from trajkit.commands.checkup.check import Check, broken, note, well
from trajkit.errors import MissingExtra

GATEWAY_VARIABLE = "TENSORZERO_GATEWAY_URL"
"""Where TensorZero's own clients look for a gateway."""

_HUB = "https://huggingface.co"
_LOG_IN = "hf auth login, or export HF_TOKEN=…"
_MOST_SAID = 200


def gateway() -> Check | None:
    """Whether the gateway that the environment names answers and is well; None where it names none."""
    if (url := secret_from_environment(GATEWAY_VARIABLE)) is None:
        return None
    text = url.get_secret_value()
    where, todo = shown(text), f"start the gateway, or correct it: export {GATEWAY_VARIABLE}=…"
    try:
        answer = ask(f"{text.rstrip('/')}/health")
    except UNREACHABLE as error:
        return broken(GATEWAY_VARIABLE, f"no gateway answers at {where}: {why(error)}", todo)
    if answer.status == HTTPStatus.OK:
        return well(GATEWAY_VARIABLE, f"{where} answers", url=where)
    if answer.status == HTTPStatus.NOT_FOUND:
        return broken(GATEWAY_VARIABLE, f"{where} answers, and is no gateway of TensorZero", todo, url=where)
    said = " ".join(hidden(answer.body.decode("utf-8", "replace"), url).split())[:_MOST_SAID]
    return broken(GATEWAY_VARIABLE, f"{where} is not well ({answer.status}): {said}", todo, url=where)


def hub() -> Check:
    """Whether the Hub answers, and whose token this is."""
    address = (os.environ.get("HF_ENDPOINT") or _HUB).rstrip("/")
    where, token = shown(address), _token()
    headers = {} if token is None else {"Authorization": f"Bearer {token.get_secret_value()}"}
    try:
        answer = ask(f"{address}/api/whoami-v2", headers)
    except UNREACHABLE as error:
        todo = "look at the network and at HF_ENDPOINT"
        return broken("Hub", f"nothing answers at {where}: {why(error)}", todo)
    if answer.status == HTTPStatus.OK:
        who = hidden(answer.body.decode("utf-8", "replace"), token)
        return _known(where, json_from_outside(who, where=f"the answer of {where}"))
    return _unknown(where, answer, has_token=token is not None)


def _known(where: str, who: Any) -> Check:
    if not isinstance(who, dict):
        return broken("Hub", f"{where} does not answer as the Hub does", "look at HF_ENDPOINT")
    role = ((who.get("auth") or {}).get("accessToken") or {}).get("role")
    said = f"{where} knows the token of {who.get('name')}{f', which may {role}' if role else ''}"
    if role == "read":
        return note("Hub", said, f"`trajkit push` needs a token that may write: {where}/settings/tokens")
    return well("Hub", said, url=where)


def _unknown(where: str, answer: Answer, *, has_token: bool) -> Check:
    if not has_token:
        return note(
            "Hub", f"{where} answers; there is no token, so nothing private can be read or pushed", _LOG_IN
        )
    if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return broken("Hub", f"{where} refuses the token: it has expired, or is none", _LOG_IN)
    return broken("Hub", f"{where} answers {answer.status}", "try again later")


def _token() -> SecretStr | None:
    from trajkit.publishing.hub import found_token

    try:
        return found_token()
    except MissingExtra:  # only that package knows where `hf auth login` left one
        return secret_from_environment("HF_TOKEN")
