"""What episodes begin with, so that a list can be read and searched: their mission, and the first words."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import duckdb

from trajkit.store.engine import scan
from trajkit.viewer.index import Index
from trajkit.viewer.shelved import Shelved

_LONGEST = 400
"""Characters that are kept of each."""

_MISSION = " ".join(f"input->>'$.system.{name}'," for name in ("mission", "goal", "task", "instruction"))
_SAID = "list_filter(CAST(messages AS JSON[]), lambda m: m->>'role' = 'user')"
_BEGINNINGS = f"""
    SELECT episode_id, left(coalesce({_MISSION} NULL), {_LONGEST}) AS mission,
        left(coalesce(nullif(({_SAID}[1])->>'$.content[0].text', ''), observation), {_LONGEST}) AS first
    FROM (SELECT episode_id, CAST(input AS JSON) AS input, CAST(messages AS JSON) AS messages, observation
        FROM {{part}} WHERE step_index = 0)
"""
_log = logging.getLogger(__name__)


def read_beginnings(index: Index, stores: Sequence[Shelved], is_closing: threading.Event) -> None:
    """Read them part by part into the index. What cannot be read is only logged: the list does without.

    Args:
        index: Where they go.
        stores: Whose episodes.
        is_closing: Set when nobody wants them any more.
    """
    for one in stores:
        for part in one.store.parts("steps"):
            if is_closing.is_set():
                return
            try:
                with one.connection.cursor() as cursor:
                    found = cursor.sql(_BEGINNINGS.format(part=scan([part]))).to_arrow_table()
                index.add_beginnings(one.number, found)
            except duckdb.Error as error:
                if not is_closing.is_set():
                    _log.warning("%s: what its episodes begin with is not known: %s", part, error)
