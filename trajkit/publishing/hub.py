"""Access the Hugging Face Hub for publishing: account, repositories, commits, downloads.

Failures of the Hub and of the network become trajkit's errors, without the token.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import SecretStr

from trajkit._core.lazy import need
from trajkit._core.outside import name_from_outside
from trajkit._core.secrets import HIDDEN, hidden
from trajkit._core.settings import checked_secret
from trajkit.errors import ConfigError, RequestError, ServiceError

Kind = Literal["dataset", "model"]
"""Kind of a repository."""
Result = TypeVar("Result")

ENDPOINT = "https://huggingface.co"
_ATTEMPTS = 5
_REFUSED = 400
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 300.0
_WRITERS = ("admin", "write", "contributor")
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]*[A-Za-z0-9_]")
_EXTRA = "hub"
_CARD_HINT = "see --license, --language and --pretty-name"
_AGAIN = "run the same command again: what was sent is not sent twice"
_SECONDS = re.compile(r"\bt\s*=\s*(\d+)")
_TOKEN = re.compile(r"hf_[A-Za-z0-9]{4,}|Bearer\s+\S+")
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _CONFLICT, _STALE, _TOO_MANY = 401, 403, 404, 409, 412, 429
_HINTS = {
    _UNAUTHORIZED: "the token is expired or invalid: make one in the Hub's settings and set HF_TOKEN",
    _FORBIDDEN: "the token may not write there: it needs the role write for this owner",
    _NOT_FOUND: "check the name, and that this token may see it",
    _TOO_MANY: "the Hub limits requests: try again in some minutes; what was sent is kept",
}


class HubFault(ServiceError):
    """The Hub refused a request, or did not answer.

    Args:
        message: The failure, in words.
        status: The HTTP status; None if there was no answer.
        wait_s: Seconds to wait before the next request; None when the Hub gave none.
        hint: What to do about it.
    """

    def __init__(
        self, message: str, *, status: int | None, wait_s: float | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.wait_s = wait_s

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status is None or self.status >= 500 or self.status == _TOO_MANY

    @property
    def is_conflict(self) -> bool:
        """Whether another commit came in between."""
        return self.status in (_CONFLICT, _STALE)

    @property
    def is_absent(self) -> bool:
        """Whether the repository, revision or file does not exist."""
        return self.status == _NOT_FOUND


@contextmanager
def _asking(what: str, *, token: str | None) -> Iterator[None]:
    """Convert failures of a block that calls the Hub.

    Args:
        what: The request in words, such as `create me/data`.
        token: The token to remove from all messages.

    Raises:
        HubFault: The Hub refused or did not answer.
        RequestError: The card's metadata is refused, or a name is invalid.
    """
    errors = need("huggingface_hub.errors", extra=_EXTRA)
    httpx = need("httpx2", extra=_EXTRA)
    session = need("huggingface_hub", extra=_EXTRA).get_session()
    if _refuse_redirect not in (hooks := session.event_hooks)["response"]:
        session.event_hooks = {**hooks, "response": [*hooks["response"], _refuse_redirect]}
    try:
        yield
    except errors.HFValidationError as error:
        raise RequestError(f"{what}: {_clean(str(error), token)}", hint="such as org/name") from None
    except (httpx.HTTPError, RuntimeError, ValueError, OSError) as error:
        raise _fault(what, error, errors, httpx, token) from None


def _refuse_redirect(answer: Any) -> None:
    """Refuse to send data to another host. Reads may be redirected."""
    request, onward = answer.request, answer.headers.get("location", "")
    if request.method not in ("GET", "HEAD") and answer.has_redirect_location:
        goal = request.url.join(onward)
        if (goal.scheme, goal.netloc) != (request.url.scheme, request.url.netloc):
            raise ServiceError(
                f"{request.url.host} redirects {request.method} to {goal.host}: data is sent to no other host"
            )


def _fault(what: str, error: BaseException, errors: Any, httpx: Any, token: str | None) -> Exception:
    if isinstance(error, ValueError) and "metadata" in str(error):
        return RequestError(f"the Hub refuses the card: {_clean(str(error), token)}", hint=_CARD_HINT)
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, httpx.HTTPError):
        cause = cause.__cause__
    if cause is None:
        return HubFault(f"{what}: {_clean(str(error), token)}", status=None, hint=_AGAIN)
    response = getattr(cause, "response", None) if isinstance(cause, errors.HfHubHTTPError) else None
    if response is None:
        return HubFault(f"{what}: the Hub does not answer ({type(cause).__name__})", status=None, hint=_AGAIN)
    status = int(response.status_code)
    said = getattr(cause, "server_message", None) or response.headers.get("X-Error-Message") or ""
    text = f"{what}: the Hub says {status}{': ' + _clean(said, token) if said else ''}"
    hint = _HINTS.get(status, _AGAIN if status >= 500 else None)
    return HubFault(text, status=status, wait_s=_wait(response.headers), hint=hint)


def _wait(headers: Any) -> float | None:
    """Return the seconds to wait, from `Retry-After` or `RateLimit`."""
    if (after := headers.get("Retry-After", "")).isdigit():
        return float(after)
    found = _SECONDS.search(headers.get("RateLimit", ""))
    return float(found[1]) if found else None


def _clean(text: str, token: str | None) -> str:
    """Put a text on one line and remove everything that looks like a token."""
    return _TOKEN.sub(HIDDEN, " ".join(hidden(text, token).split()))[:300]


class Hub:
    """One Hub, with a user's token.

    Args:
        token: The token; None to read public repositories only.
        endpoint: Address; None for `HF_ENDPOINT`, or the Hub's own address.
        sleep: Waits a number of seconds.
    """

    def __init__(
        self,
        token: SecretStr | None = None,
        *,
        endpoint: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        hub = need("huggingface_hub", extra=_EXTRA)
        self.endpoint = (endpoint or os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")
        if "@" in self.endpoint:  # the endpoint is recorded in stores and cards
            raise ConfigError("HF_ENDPOINT holds a user or a password", hint="put the token into HF_TOKEN")
        self.token = token.get_secret_value() if token is not None else None
        self._sleep = sleep
        self.api = hub.HfApi(endpoint=self.endpoint, token=self.token or False)
        need("huggingface_hub.utils", extra=_EXTRA).disable_progress_bars()

    def __repr__(self) -> str:
        return f"<Hub {self.endpoint}>"

    @functools.cached_property
    def account(self) -> Account:
        """The account of the token; read once, because the Hub limits this request.

        Raises:
            HubFault: The token is invalid or expired.
        """
        answer = self.patiently("read the token's account", self.api.whoami)
        role = ((answer.get("auth") or {}).get("accessToken") or {}).get("role")
        owners = {answer["name"]} | {
            each["name"] for each in answer.get("orgs") or () if each.get("roleInOrg", "write") in _WRITERS
        }
        return Account(answer["name"], frozenset(owners), role != "read")

    def repository(self, name: str, kind: Kind) -> Repository:
        """Return a repository, which need not exist."""
        return Repository(self, name, kind)

    def additions(self, files: Mapping[str, Path]) -> list[Any]:
        """Return files as parts of a commit; a repeated commit can reuse them without reading them again."""
        hub = need("huggingface_hub", extra=_EXTRA)
        return [hub.CommitOperationAdd(path, str(file)) for path, file in sorted(files.items())]

    def deletions(self, paths: Iterable[str]) -> list[Any]:
        """Return removals of files as parts of a commit."""
        hub = need("huggingface_hub", extra=_EXTRA)
        return [hub.CommitOperationDelete(path) for path in sorted(paths)]

    def check_card(self, text: str, kind: Kind) -> None:
        """Let the Hub check a card's metadata, as it does when the card is committed.

        Raises:
            RequestError: The Hub refuses it; the message has its reasons.
        """
        utils = need("huggingface_hub.utils", extra=_EXTRA)
        headers = utils.build_hf_headers(token=self.token or False)

        def ask() -> None:
            body = {"content": text, "repoType": kind}
            answer = utils.get_session().post(
                f"{self.endpoint}/api/validate-yaml", json=body, headers=headers
            )
            if answer.status_code == _REFUSED:
                reasons = [str(each.get("message")) for each in answer.json().get("errors") or ()]
                raise RequestError(
                    f"the Hub refuses the card: {'; '.join(reasons) or 'it gives no reason'}", hint=_CARD_HINT
                )
            utils.hf_raise_for_status(answer)

        self.patiently("check the card", ask)

    def wait(self, attempt: int, fault: HubFault) -> None:
        """Wait before the next try: as long as the Hub asks, otherwise twice as long each time."""
        self._sleep(min(fault.wait_s or _FIRST_WAIT_S * 2**attempt, _LONGEST_WAIT_S))

    def patiently(self, what: str, ask: Callable[[], Result]) -> Result:
        """Send a repeatable request, again while it fails with a passing fault."""
        for attempt in range(_ATTEMPTS):
            try:
                with _asking(what, token=self.token):
                    return ask()
            except HubFault as fault:
                if not fault.is_passing or attempt == _ATTEMPTS - 1:
                    raise
                self.wait(attempt, fault)
        raise AssertionError("the last attempt returns or raises")


class Repository:
    """A repository of a Hub. Created by `Hub.repository`.

    Args:
        hub: The Hub.
        name: Name as `owner/name`.
        kind: Its kind.
    """

    def __init__(self, hub: Hub, name: str, kind: Kind) -> None:
        self.hub, self.name, self.kind = hub, name, kind

    @property
    def address(self) -> str:
        """Its web address."""
        return f"{self.hub.endpoint}/{'datasets/' if self.kind == 'dataset' else ''}{self.name}"

    def look(self, revision: str | None = None) -> Remote | None:
        """Read it at its newest commit or a revision; None when the token sees no such repository.

        Raises:
            HubFault: There is no such revision, or the Hub does not answer.
        """
        what = f"look at {self.name}"
        try:
            info = self._ask(what, self.hub.api.repo_info, revision=revision)
        except HubFault as fault:
            if fault.is_absent and revision is None:
                return None
            raise
        listed = self.hub.api.list_repo_tree
        entries = self._ask(
            what, lambda *name, **kind: list(listed(*name, recursive=True, revision=info.sha, **kind))
        )
        files = {
            each.path: RemoteFile(
                each.size, None if each.lfs is None else each.lfs.sha256, getattr(each, "blob_id", None)
            )
            for each in entries
            if hasattr(each, "size")
        }
        name_from_outside(info.sha, what=f"the commit of {self.name}", error=ServiceError)
        return Remote(info.sha, bool(info.private), files)

    def create(self) -> None:
        """Create it, private; an existing one stays unchanged."""
        self._ask(f"create {self.name}", self.hub.api.create_repo, private=True, exist_ok=True)

    def commit(self, operations: list[Any], *, message: str, parent: str, branch: str | None = None) -> str:
        """Send files as one commit, which the Hub refuses if `parent` is no longer the newest.

        The request is sent once: after a lost answer, only the repository shows whether it succeeded.

        Returns:
            The id of the new commit.

        Raises:
            HubFault: The Hub refused, or there was no answer.
            RequestError: The card's metadata is refused.
        """
        with _asking(f"commit to {self.name}", token=self.hub.token):
            made = self.hub.api.create_commit(
                self.name,
                operations,
                commit_message=message,
                repo_type=self.kind,
                revision=branch,
                parent_commit=parent,
            )
        return str(made.oid)

    def tags(self) -> dict[str, str]:
        """Return the commit of each tag."""
        refs = self._ask(f"list the tags of {self.name}", self.hub.api.list_repo_refs)
        return {ref.name: ref.target_commit for ref in refs.tags}

    def tag(self, tag: str, commit: str) -> None:
        """Tag a commit."""
        self._ask(f"tag {self.name}", self.hub.api.create_tag, tag=tag, revision=commit, exist_ok=True)

    def branch(self, name: str, commit: str) -> str:
        """Create a branch, or find it from an earlier try, and return its newest commit."""
        what = f"create a branch of {self.name}"
        self._ask(what, self.hub.api.create_branch, branch=name, revision=commit, exist_ok=True)
        found = self.look(name)
        assert found is not None
        return found.commit

    def remove_branch(self, name: str) -> None:
        """Remove a branch."""
        self._ask(f"remove a branch of {self.name}", self.hub.api.delete_branch, branch=name)

    def show_to_all(self) -> None:
        """Make it public."""
        self._ask(f"make {self.name} public", self.hub.api.update_repo_settings, private=False)

    def download(self, path: str, commit: str, folder: Path) -> Path:
        """Download a file of a commit into a folder, under its own path."""
        what = f"read {path} of {self.name}"
        load = self.hub.api.hf_hub_download
        return Path(self._ask(what, load, filename=path, revision=commit, local_dir=folder))

    def _ask(self, what: str, call: Callable[..., Any], **options: Any) -> Any:
        """Make a repeatable call about this repository."""
        return self.hub.patiently(what, lambda: call(self.name, repo_type=self.kind, **options))


def found_token() -> SecretStr | None:
    """Return the token of `HF_TOKEN` or of `hf auth login`; None when there is none.

    Raises:
        ConfigError: It has a character that cannot be sent.
    """
    token = need("huggingface_hub", extra=_EXTRA).get_token()
    return checked_secret(token or "", "the token of the Hub (HF_TOKEN, or the one of `hf auth login`)")


class RemoteFile(NamedTuple):
    """A file of a repository, as the Hub describes it."""

    n_bytes: int
    """Its size."""
    sha256: str | None
    """Sha256 of its bytes, if it is stored as a large file; None if it is in git itself."""
    blob_id: str | None
    """Its id in git."""

    def is_same(self, path: Path) -> bool:
        """Check whether it has the same bytes as a local file."""
        if path.stat().st_size != self.n_bytes:
            return False
        with path.open("rb") as file:
            if self.sha256 is not None:
                return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256
            blob = hashlib.sha1(b"blob %d\0" % self.n_bytes, usedforsecurity=False)
            while piece := file.read(1 << 20):
                blob.update(piece)
        return blob.hexdigest() == self.blob_id


class Remote(NamedTuple):
    """A repository at one commit."""

    commit: str
    """Its commit."""
    is_private: bool
    """Whether only its owner can see it."""
    files: Mapping[str, RemoteFile]
    """Its files by path."""


class Account(NamedTuple):
    """The account of a token."""

    name: str
    """Name of the user."""
    writes_to: frozenset[str]
    """Owners that it may write for, as far as the Hub says, including organisations with an unknown role."""
    can_write: bool
    """False for a read-only token."""


def checked_name(repository: str) -> str:
    """Check that a repository's name has the form `owner/name`.

    Raises:
        RequestError: It has another form.
    """
    if not _REPOSITORY.fullmatch(repository) or "--" in repository or ".." in repository:
        raise RequestError(f"{repository!r} is not a repository name", hint="such as org/name")
    return repository


def refuse_writing(account: Account, repository: str) -> None:
    """Refuse a token that cannot write to a repository, before anything is sent.

    Raises:
        ServiceError: The token is read-only, or the account may not write for the repository's owner.
    """
    owner = repository.partition("/")[0]
    if not account.can_write:
        raise ServiceError(
            f"the token of {account.name} is read-only", hint="make one with the role write and set HF_TOKEN"
        )
    if owner not in account.writes_to:
        raise ServiceError(
            f"{account.name} may not write for {owner}",
            hint=f"owners that the token may write for: {', '.join(sorted(account.writes_to))}",
        )
