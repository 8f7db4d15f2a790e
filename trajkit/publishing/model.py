"""Make a model repository of the Hub: the model's files, and a card that describes its origin."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trajkit._core.files import sha256_file, write_text
from trajkit._core.outside import regular_file, yaml_from_outside
from trajkit.curation.redaction.column import RedactReport
from trajkit.errors import DataError, RequestError
from trajkit.publishing.card import CARD, CardWish, front_matter, plain, table
from trajkit.publishing.file_scan import scan_files
from trajkit.publishing.record import RECORD, PublishedFile, Record, record_text
from trajkit.schema import Model
from trajkit.schema.base import Name, Text

_WEIGHTS = ".safetensors"
_TAKEN = (_WEIGHTS, ".json", ".jinja", ".txt", ".model", ".md")
_NOT_TAKEN = frozenset({CARD, RECORD, "job.json", "trainer_state.json", "training_args.json"})
_ADAPTER, _WHOLE = "adapter_config.json", "config.json"
_BASE = "base_model_name_or_path"
_FRONT = re.compile(r"\A---\s*\n(.*?)\n---\s*\n", re.DOTALL)
_UNKNOWN_LICENSE = re.compile(r"\*\*Licence: unknown\.\*\*.*?(?=\n\n)", re.DOTALL)
_NOT_EVALUATED = re.compile(r"\*\*Not evaluated\.\*\*.*?(?=\n\n)", re.DOTALL)


class Measured(Model):
    """The evaluation of a model: a table for its card."""

    headings: tuple[Text, ...]
    """Headings of the columns."""
    rows: tuple[tuple[Text, ...], ...]
    """One row per variant."""
    said: Text = ""
    """Explanation under the table."""


class Origin(Model):
    """The origin of a model, as far as known."""

    base: Name | None = None
    """The base model, as the Hub names it."""
    data_digest: Name | None = None
    """Digest of the training store."""
    dataset: Name | None = None
    """Repository where that store is published, as `owner/name`."""
    job_id: Name | None = None
    """Id of the training job."""


class ModelContents(NamedTuple):
    """The files of a model repository."""

    folder: Path
    """Folder of the files."""
    record: Record
    """The record that describes them."""
    is_adapter: bool
    """Whether the model is an adapter, which needs its base model."""
    scanned: RedactReport
    """Secrets and personal data in the card, the settings and the tokenizer, by kind and file."""


def is_model(folder: Path) -> bool:
    """Check whether a folder holds a model or an adapter."""
    return any((folder / name).is_file() for name in (_ADAPTER, _WHOLE))


def make_model_contents(
    model: Path,
    folder: Path,
    wish: CardWish,
    origin: Origin,
    *,
    measured: Measured | None = None,
    patterns: Mapping[str, str] | None = None,
) -> ModelContents:
    """Copy the files that a model needs to run into a folder, add card and record, and search for secrets.

    Optimizer states, checkpoints and pickled files are not copied.

    Args:
        model: The folder of the adapter or the model.
        folder: Empty folder for the files.
        wish: The facts that a person gave.
        origin: Origin of the model.
        measured: Result of an evaluation; None for no evaluation.
        patterns: Further patterns to search for: names to regular expressions.

    Raises:
        RequestError: The folder holds no model, or an adapter whose base model is a local path.
        DataError: A settings file or a file of weights is damaged; a file is a link out of the folder.
    """
    if not is_model(model):
        raise RequestError(f"{model} holds no model: no {_ADAPTER} and no {_WHOLE}")
    names = sorted(path.name for path in model.iterdir() if path.is_file() and _is_taken(path))
    if not any(name.endswith(_WEIGHTS) for name in names):
        raise RequestError(f"{model} has no weights: no file ends in {_WEIGHTS}")
    for name in names:
        shutil.copyfile(regular_file(model / name, within=model), folder / name)
    is_adapter = (model / _ADAPTER).is_file()
    base = _base(folder, origin.base, is_adapter=is_adapter)
    card = _card(model, wish, origin, base, measured, is_adapter=is_adapter)
    write_text(folder / CARD, card)
    scanned = scan_files(folder, [*names, CARD], patterns=patterns)
    write_text(folder / CARD, card + "".join(f"{line}\n" for line in _privacy(scanned)))
    files = tuple(
        PublishedFile(path=name, sha256=sha256_file(folder / name), n_bytes=(folder / name).stat().st_size)
        for name in names
    )
    record = Record(kind="model", files=files)
    write_text(folder / RECORD, record_text(record))
    return ModelContents(folder, record, is_adapter, scanned)


def _is_taken(path: Path) -> bool:
    return path.suffix in _TAKEN and path.name not in _NOT_TAKEN and not path.name.startswith(".")


def _base(folder: Path, given: str | None, *, is_adapter: bool) -> str | None:
    """Return the base model as the Hub names it, and write it into the copied settings."""
    path = folder / (_ADAPTER if is_adapter else _WHOLE)
    try:
        settings: Any = json.loads(path.read_text(encoding="utf-8"))
        settings.get(_BASE)
    except (ValueError, AttributeError) as error:
        raise DataError(f"{path.name} of the model is damaged: {error}") from None
    recorded = settings.get(_BASE) if is_adapter else None
    base = given or recorded
    if base is not None and _is_path(str(base)):
        raise RequestError(
            f"the base {Path(str(base)).name!r} is a local path or sample, which others lack",
            hint="--base ORG/NAME gives its name on the Hub",
        )
    if is_adapter and base != recorded:
        settings[_BASE] = base
        write_text(path, json.dumps(settings, indent=2, ensure_ascii=False) + "\n")
    if not is_adapter and _is_path(str(settings.get("_name_or_path") or "")):
        settings.pop("_name_or_path")
        write_text(path, json.dumps(settings, indent=2, ensure_ascii=False) + "\n")
    return None if base is None else str(base)


def _is_path(text: str) -> bool:
    return text.startswith(("/", "~", ".", "sample:")) or "\\" in text


def _card(
    model: Path,
    wish: CardWish,
    origin: Origin,
    base: str | None,
    measured: Measured | None,
    *,
    is_adapter: bool,
) -> str:
    fields, body = _written(model)
    tags = list(dict.fromkeys(["trajkit", *(fields.get("tags") or ()), *wish.tags]))
    metadata = {
        **fields,
        "license": wish.license or "unknown",
        "language": list(wish.languages),
        "base_model": base,
        "base_model_relation": None if base is None else ("adapter" if is_adapter else "finetune"),
        "library_name": "peft" if is_adapter else "transformers",
        "pipeline_tag": "text-generation",
        "datasets": None if origin.dataset is None else [origin.dataset],
        "tags": tags,
    }
    if wish.license is not None:
        body = _UNKNOWN_LICENSE.sub(f"Licence: `{plain(wish.license)}`.", body)
    if measured is not None:
        body = _NOT_EVALUATED.sub("Evaluated: see below.", body)
    return (
        front_matter(metadata) + "\n".join([body.rstrip(), *_more(wish, origin, base, measured, body)]) + "\n"
    )


def _written(model: Path) -> tuple[dict[str, Any], str]:
    """Return metadata and text of the card that the training wrote; empty if there is none."""
    path = model / CARD
    text = ""
    if path.is_file():
        text = regular_file(path, within=model).read_text(encoding="utf-8", errors="replace")
    found = _FRONT.match(text)
    if found is None:
        return {}, text
    try:
        fields = yaml_from_outside(found[1], where=f"the metadata of {path}")
    except DataError as error:
        raise DataError(str(error), hint="repair it, or remove the file to have one written") from None
    if not isinstance(fields, dict):
        raise DataError(f"the metadata of {path} is not a table", hint="repair it, or remove the file")
    return fields, text[found.end() :]


def _more(
    wish: CardWish, origin: Origin, base: str | None, measured: Measured | None, body: str
) -> Iterator[str]:
    if not body.strip():
        yield from (f"# {plain(wish.title)}", "", "Tuned with [trajkit](https://github.com/trajkit/trajkit).")
    yield from ("", "## Origin", "")
    yield from table(("", ""), list(_origin_rows(origin, base)))
    yield from ("", "## Evaluation", "")
    yield from _evaluation(measured)


def _origin_rows(origin: Origin, base: str | None) -> Iterator[Sequence[str]]:
    yield "base", f"`{base}`" if base else "unknown"
    yield "digest of the training data", f"`{origin.data_digest}`" if origin.data_digest else "unknown"
    dataset = origin.dataset
    yield (
        "data on the Hub",
        f"[{dataset}](https://huggingface.co/datasets/{dataset})" if dataset else "not published",
    )
    if origin.job_id is not None:
        yield "training", f"`{origin.job_id}`"


def _evaluation(measured: Measured | None) -> Iterator[str]:
    if measured is None:
        yield "**None.** No evaluation was given when the model was published."
        return
    yield from table(measured.headings, measured.rows)
    if measured.said:
        yield from ("", plain(measured.said))


def _privacy(scanned: RedactReport) -> Iterator[str]:
    yield from ("", "## Secrets and personal data", "")
    if not scanned.n_found:
        yield f"{scanned.n_texts:,} files of text were searched, and nothing was found."
        return
    yield f"{scanned.n_texts:,} files of text were searched, and these findings were published:"
    yield from ("", *(f"- {each.n_found:,} {each.kind} in {plain(each.place)}" for each in scanned.found))
