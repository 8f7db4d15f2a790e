"""A Hub of our own over real HTTP: the routes that publishing uses, in memory, with faults on request."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib.util
import json
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlparse

from trajkit.stack.loopback import LoopbackHandler, LoopbackServer

TOKEN = "hf_" + "standinwritetoken"
READ_TOKEN = "hf_" + "standinreadtoken"
STALE = "A commit has happened since. Please refresh and try again."
_API = re.compile(r"/api/(model|dataset)s/([^/]+/[^/]+)(?:/(.*))?")
_BATCH = re.compile(r"/(?:datasets/)?([^/]+/[^/]+)\.git/info/lfs/objects/batch")
_RESOLVE = re.compile(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.*)")


@dataclass
class Commit:
    oid: str
    files: dict[str, dict[str, Any]]
    title: str


@dataclass
class Repository:
    private: bool
    heads: dict[str, list[Commit]]
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def commits(self) -> list[Commit]:
        return self.heads["main"]

    def at(self, revision: str) -> Commit | None:
        if revision in self.heads:
            return self.heads[revision][-1]
        oid = self.tags.get(revision, revision)
        return next((each for many in self.heads.values() for each in many if each.oid == oid), None)


@dataclass
class Fault:
    """What goes wrong with the next requests that match: before or after they were carried out."""

    method: str
    path: str
    status: int | None = None
    """None: the connection is cut."""
    times: int = 1
    is_after: bool = False
    """The request is carried out, and only its answer is lost."""
    headers: dict[str, str] = field(default_factory=dict)
    do: Callable[[], None] | None = None
    """Done before the request instead of refusing it."""


class HubStandin:
    """What is there, and what was asked."""

    def __init__(self) -> None:
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.large: dict[str, bytes] = {}
        self.uploads: list[str] = []
        self.requests: list[tuple[str, str]] = []
        self.faults: list[Fault] = []
        self.is_expired = False
        self.user = "tester"
        self.url = ""

    def dataset(self, name: str) -> Repository:
        return self.repositories["dataset", name]

    def file(self, kind: str, name: str, path: str) -> bytes:
        entry = self.repositories[kind, name].commits[-1].files[path]
        return self.large[entry["lfs"]] if "lfs" in entry else entry["data"]

    def put(self, kind: str, name: str, files: dict[str, bytes], *, private: bool = True) -> None:
        """A repository that somebody else made."""
        entries = {path: _small(data) for path, data in files.items()}
        oid = hashlib.sha1(repr((kind, name, sorted(files))).encode()).hexdigest()
        self.repositories[kind, name] = Repository(private, {"main": [Commit(oid, entries, "theirs")]})

    def branch(self, kind: str, name: str, branch: str, files: dict[str, bytes]) -> None:
        """A branch of such a repository, with files of its own."""
        entries = {path: _small(data) for path, data in files.items()}
        oid = hashlib.sha1(repr((kind, name, branch, sorted(files))).encode()).hexdigest()
        self.repositories[kind, name].heads[branch] = [Commit(oid, entries, "theirs")]

    def commit_of_somebody_else(self, name: str) -> None:
        commits = self.dataset(name).commits
        files = {**commits[-1].files, "theirs.txt": _small(b"theirs")}
        commits.append(Commit(hashlib.sha1(commits[-1].oid.encode()).hexdigest(), files, "theirs"))

    def commits(self, name: str) -> int:
        """How often it was committed to main, the first one not counted."""
        return len(self.dataset(name).commits) - 1


# those of the Hub that a dataset of ours could have; the whole list is on its page about repositories
_LICENCES = (
    "apache-2.0 mit openrail cc0-1.0 cc-by-4.0 cc-by-sa-4.0 cc-by-nc-4.0 cc-by-nc-sa-4.0 bsd-3-clause "
    "gpl-3.0 odc-by odbl other unknown"
)


def _faults(fields: dict[str, Any]) -> Iterator[str]:
    """What the Hub says against the metadata of a card, by the lists that its own library has."""

    def many(name: str) -> list[Any]:
        value = fields.get(name)
        return [] if value is None else value if isinstance(value, list) else [value]

    found = importlib.util.find_spec("datasets")  # its import takes seconds
    resources = Path(str(found.origin)).parent / "utils" / "resources"
    lists = {
        "license": _LICENCES.split(),
        "language": json.loads((resources / "languages.json").read_text()),
        "size_categories": json.loads((resources / "size_categories.json").read_text()),
        "annotations_creators": json.loads((resources / "creators.json").read_text())["annotations"],
        "task_categories": ["text-generation"],
    }
    for name, known in lists.items():
        for value in many(name):
            if value not in known:
                yield f'"{name}" must be one of [{", ".join(list(known)[:5])}, ...]'
    for name in ("tags", "datasets"):
        if not all(isinstance(each, str) and each for each in many(name)):
            yield f'"{name}" must be an array of strings'
    for config in many("configs"):
        if not isinstance(config, dict) or not config.get("config_name") or not config.get("data_files"):
            yield '"configs" need a config_name and data_files'


def _small(data: bytes) -> dict[str, Any]:
    return {"data": data, "oid": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()}


class _Handler(LoopbackHandler):
    hub: HubStandin

    def _send(
        self, code: int, value: Any = None, headers: dict[str, str] | None = None, raw: bytes | None = None
    ) -> None:
        body = raw if raw is not None else b"" if value is None else json.dumps(value).encode()
        kind = "application/json" if raw is None else "application/octet-stream"
        self.send(code, kind, body, headers or {})

    def _refuse(self, code: int, message: str, kind: str | None = None) -> None:
        headers = {"X-Error-Message": message} | ({"X-Error-Code": kind} if kind else {})
        self._send(code, {"error": message}, headers)

    def _go(self) -> None:
        body = self.read_body(1 << 30)
        url = urlparse(self.path)
        path = unquote(url.path)
        self.hub.requests.append((self.command, path))
        fault = self._fault(path)
        if fault is not None and fault.do is not None:
            fault.do()
            fault = None
        if fault is not None and not fault.is_after:
            self._break(fault)
            return
        if fault is not None:
            real, self._send = self._send, lambda *a, **k: None  # type: ignore[method-assign, assignment]
            try:
                self._answer(path, parse_qs(url.query), body)
            finally:
                self._send = real  # type: ignore[method-assign]
            self._break(fault)
            return
        self._answer(path, parse_qs(url.query), body)

    def _fault(self, path: str) -> Fault | None:
        for fault in self.hub.faults:
            if fault.times and fault.method == self.command and re.search(fault.path, path):
                fault.times -= 1
                return fault
        return None

    def _break(self, fault: Fault) -> None:
        if fault.status is not None:
            self._send(fault.status, {"error": "broken"}, {"X-Error-Message": "broken", **fault.headers})
            return
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _answer(self, path: str, query: dict[str, list[str]], body: bytes) -> None:
        if path.startswith("/_lfs/"):
            return self._large(path, body)
        token = (self.headers.get("authorization") or "").removeprefix("Bearer ")
        if self.hub.is_expired or token not in (TOKEN, READ_TOKEN, ""):
            return self._refuse(401, f"Invalid token {token}")
        if self.command in ("POST", "PUT", "DELETE") and "paths-info" not in path and token != TOKEN:
            return self._refuse(403, "You need a token with the role write")
        if path == "/api/whoami-v2":
            role = "write" if token == TOKEN else "read"
            orgs = [{"name": "team", "roleInOrg": "write"}, {"name": "readers", "roleInOrg": "read"}]
            return self._send(
                200,
                {
                    "type": "user",
                    "name": self.hub.user,
                    "orgs": orgs,
                    "auth": {"accessToken": {"role": role}},
                },
            )
        if path == "/api/validate-yaml":
            return self._validate(json.loads(body))
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if match := _API.fullmatch(path):
            repository = self.hub.repositories.get((match[1], match[2]))
            if repository is None or (repository.private and not token):
                return self._refuse(404, "Repository not found", "RepoNotFound")
            return self._api(match[1], match[2], repository, match[3] or "", query, body)
        if match := _BATCH.fullmatch(path):
            return self._batch(json.loads(body))
        if match := _RESOLVE.fullmatch(path):
            return self._resolve("dataset" if match[1] else "model", match[2], match[3], match[4])
        return self._refuse(404, "no such route")

    def _validate(self, asked: dict[str, Any]) -> None:
        import yaml

        text = asked["content"].split("---")[1]
        try:
            fields = yaml.safe_load(text)
        except yaml.YAMLError:
            fields = None
        errors = list(_faults(fields)) if isinstance(fields, dict) else ["no metadata"]
        self._send(400 if errors else 200, {"errors": [{"message": each} for each in errors], "warnings": []})

    def _create(self, asked: dict[str, Any]) -> None:
        name = f"{asked.get('organization') or self.hub.user}/{asked['name']}"
        kind = asked.get("type", "model")
        if (kind, name) in self.hub.repositories:
            return self._refuse(409, "You already created this repo")
        self.hub.put(kind, name, {".gitattributes": b"*.parquet filter=lfs\n"})
        self.hub.repositories[kind, name].private = asked.get("visibility") == "private"
        return self._send(200, {"url": f"{self.hub.url}/{kind}s/{name}", "name": name, "id": "x"})

    def _api(
        self,
        kind: str,
        name: str,
        repository: Repository,
        rest: str,
        query: dict[str, list[str]],
        body: bytes,
    ) -> None:
        verb, _, argument = rest.partition("/")
        match (self.command, verb):
            case ("GET", "" | "revision"):
                self._info(name, repository, argument or "main")
            case ("GET", "tree"):
                self._tree(repository, argument, query)
            case ("POST", "paths-info"):
                self._paths_info(repository, argument, body)
            case ("POST", "preupload"):
                self._preupload(repository, argument, json.loads(body))
            case ("POST", "commit"):
                self._commit(kind, name, repository, argument, body)
            case ("POST", "branch"):
                self._branch(repository, argument, json.loads(body or b"{}"))
            case ("DELETE", "branch"):
                del repository.heads[argument]
                self._send(200, {})
            case ("POST", "tag"):
                self._tag(repository, argument, json.loads(body))
            case ("GET", "refs"):
                self._refs(repository)
            case ("PUT", "settings"):
                asked = json.loads(body)
                repository.private = asked.get("private", asked.get("visibility") == "private")
                self._send(200, {})
            case _:
                self._refuse(404, "no such route")

    def _info(self, name: str, repository: Repository, revision: str) -> None:
        if (commit := repository.at(revision)) is None:
            return self._refuse(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return self._send(
            200,
            {
                "_id": "x",
                "id": name,
                "author": name.partition("/")[0],
                "sha": commit.oid,
                "lastModified": "2026-11-21T00:00:00.000Z",
                "createdAt": "2026-11-21T00:00:00.000Z",
                "private": repository.private,
                "gated": False,
                "disabled": False,
                "tags": [],
                "downloads": 0,
                "likes": 0,
                "siblings": [{"rfilename": path} for path in commit.files],
            },
        )

    def _entry(self, path: str, entry: dict[str, Any]) -> dict[str, Any]:
        size = entry["size"] if "lfs" in entry else len(entry["data"])
        told = {"type": "file", "oid": entry["oid"], "size": size, "path": path}
        if "lfs" in entry:
            told["lfs"] = {"oid": entry["lfs"], "size": size, "pointerSize": 134}
        return told

    def _tree(self, repository: Repository, argument: str, query: dict[str, list[str]]) -> None:
        revision, _, below = argument.partition("/")
        if (commit := repository.at(revision)) is None:
            return self._refuse(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        is_recursive = query.get("recursive", ["false"])[0].lower() in ("true", "1")
        found: list[dict[str, Any]] = []
        folders: set[str] = set()
        for path, entry in sorted(commit.files.items()):
            if below and not path.startswith(f"{below}/"):
                continue
            inner = path[len(below) + 1 :] if below else path
            if "/" in inner:
                folder = (f"{below}/" if below else "") + inner.partition("/")[0]
                if folder not in folders:
                    folders.add(folder)
                    found.append({"type": "directory", "oid": "0" * 40, "size": 0, "path": folder})
                if not is_recursive:
                    continue
            found.append(self._entry(path, entry))
        if below and not found:
            return self._refuse(404, "Entry not found", "EntryNotFound")
        return self._send(200, found)

    def _paths_info(self, repository: Repository, revision: str, body: bytes) -> None:
        if (commit := repository.at(revision)) is None:
            return self._refuse(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        is_json = (self.headers.get("content-type") or "").startswith("application/json")
        paths = json.loads(body)["paths"] if is_json else parse_qs(body.decode()).get("paths", [])
        found = []
        for path in paths:
            if path in commit.files:
                found.append(self._entry(path, commit.files[path]))
            elif any(each.startswith(f"{path}/") for each in commit.files):
                found.append({"type": "directory", "oid": "0" * 40, "size": 0, "path": path})
        return self._send(200, found)

    def _preupload(self, repository: Repository, revision: str, asked: dict[str, Any]) -> None:
        commit = repository.at(revision)
        files = [
            {
                "path": each["path"],
                "uploadMode": "lfs" if each["path"].endswith((".parquet", ".safetensors")) else "regular",
                "shouldIgnore": False,
                "oid": commit.files.get(each["path"], {}).get("oid"),
            }
            for each in asked["files"]
        ]
        self._send(200, {"files": files, "commitOid": commit.oid})

    def _commit(self, kind: str, name: str, repository: Repository, branch: str, body: bytes) -> None:
        many = repository.heads[branch]
        files = dict(many[-1].files)
        header: dict[str, Any] = {}
        for line in body.splitlines():
            item = json.loads(line)
            value = item["value"]
            match item["key"]:
                case "header":
                    header = value
                case "file":
                    files[value["path"]] = _small(base64.b64decode(value["content"]))
                case "lfsFile":
                    data = self.hub.large[value["oid"]]  # committed before it was sent: a bug of ours
                    blob = hashlib.sha1(value["oid"].encode()).hexdigest()
                    files[value["path"]] = {"lfs": value["oid"], "size": len(data), "oid": blob}
                case "deletedFile":
                    del files[value["path"]]
        if header.get("parentCommit") and header["parentCommit"] != many[-1].oid:
            return self._refuse(412, STALE)
        oid = hashlib.sha1((many[-1].oid + repr(sorted(files)) + header["summary"]).encode()).hexdigest()
        many.append(Commit(oid, files, header["summary"]))
        where = f"{self.hub.url}/{'datasets/' if kind == 'dataset' else ''}{name}/commit/{oid}"
        return self._send(
            200,
            {"success": True, "commitOid": oid, "commitUrl": where, "hookOutput": "", "pullRequestUrl": None},
        )

    def _branch(self, repository: Repository, branch: str, asked: dict[str, Any]) -> None:
        if branch in repository.heads:
            return self._refuse(409, "Reference already exists")
        commit = repository.at(asked.get("startingPoint") or "main")
        repository.heads[branch] = [commit]
        return self._send(200, {})

    def _tag(self, repository: Repository, revision: str, asked: dict[str, Any]) -> None:
        commit = repository.at(revision)
        if asked["tag"] in repository.tags:
            return self._refuse(409, "Tag already exists")
        repository.tags[asked["tag"]] = commit.oid
        return self._send(200, {})

    def _refs(self, repository: Repository) -> None:
        branches = [
            {"name": name, "ref": f"refs/heads/{name}", "targetCommit": many[-1].oid}
            for name, many in repository.heads.items()
        ]
        tags = [
            {"name": name, "ref": f"refs/tags/{name}", "targetCommit": oid}
            for name, oid in repository.tags.items()
        ]
        self._send(200, {"branches": branches, "tags": tags, "converts": []})

    def _batch(self, asked: dict[str, Any]) -> None:
        objects = []
        for each in asked["objects"]:
            told = {"oid": each["oid"], "size": each["size"], "authenticated": True}
            if each["oid"] not in self.hub.large:
                told["actions"] = {"upload": {"href": f"{self.hub.url}/_lfs/{each['oid']}"}}
            objects.append(told)
        self._send(200, {"transfer": "basic", "objects": objects})

    def _large(self, path: str, body: bytes) -> None:
        oid = path.removeprefix("/_lfs/")
        if hashlib.sha256(body).hexdigest() != oid:
            return self._refuse(400, "another sha256")
        self.hub.large[oid] = body
        self.hub.uploads.append(oid)
        return self._send(200)

    def _resolve(self, kind: str, name: str, revision: str, path: str) -> None:
        repository = self.hub.repositories.get((kind, name))
        if repository is None:
            return self._refuse(404, "Repository not found", "RepoNotFound")
        if (commit := repository.at(revision)) is None:
            return self._refuse(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        entry = commit.files.get(path)
        if entry is None:
            return self._send(
                404,
                {"error": "Entry not found"},
                {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit.oid},
            )
        data = self.hub.large[entry["lfs"]] if "lfs" in entry else entry["data"]
        etag = entry.get("lfs") or entry["oid"]
        headers = {"X-Repo-Commit": commit.oid, "ETag": f'"{etag}"', "Accept-Ranges": "bytes"}
        if wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("range") or ""):
            first = int(wanted[1])
            last = min(int(wanted[2]) if wanted[2] else len(data) - 1, len(data) - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            return self._send(206, None, headers, raw=data[first : last + 1])
        return self._send(200, None, headers, raw=data)

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _go


@contextlib.contextmanager
def hub_standin() -> Iterator[HubStandin]:
    """Runs until the block ends, on a free port of loopback."""
    hub = HubStandin()
    with LoopbackServer(0, type("Handler", (_Handler,), {"hub": hub})) as server:
        server.start()
        hub.url = server.url
        yield hub
