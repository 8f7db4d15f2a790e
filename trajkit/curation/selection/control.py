"""Draw the control of a selection: a random set with as much to learn, to test whether the selection helps.

Episodes are drawn at random, without replacement, from the whole store, including those selected, until their
tokens match the selection's. Evaluation episodes are not for training: they are drawn only if
the selection has some.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from trajkit.curation.derive import Derivation
from trajkit.curation.reserve import RESERVED_REASON
from trajkit.curation.selection.pool import drawn
from trajkit.errors import NothingMatched, StoreError
from trajkit.schema import Left, Manifest
from trajkit.schema.base import JsonObject
from trajkit.store.engine import literal
from trajkit.store.reader import open_store

_AMOUNTS = "trajkit_amounts"
_DRAWN = "trajkit_control"
_LEARNED = "loss_weight > 0 AND completion IS NOT NULL"


class Amount(NamedTuple):
    """Amounts to learn in a selection and in its control."""

    unit: str
    chosen: int
    """Amount in the selection."""
    drawn: int
    """Amount in the control. The two differ by less than one episode."""
    n_both: int
    """Number of episodes in both, which make both more alike."""
    n_episodes: int
    """Number of episodes in the control."""


def control_goal(goal: Path) -> Path:
    """Return the path of a selection's control."""
    return goal.with_name(f"{goal.name}-control")


def draw_control(derivation: Derivation, *, kept: str, barred: str, seed: int) -> Amount:
    """Draw the control of a selection; `write_control` writes it.

    Args:
        derivation: The store that the selection is made from.
        kept: Relation with the `episode_id`s of the selection.
        barred: SQL that is true of an episode `e` in a reserved world that must not be drawn.
        seed: Seed of the random order.

    Raises:
        NothingMatched: Nothing in the selection is learned, so that no amount can be matched; or the control
            equals the selection.
    """
    amount = _draw(derivation, kept, _measure(derivation, barred), seed)
    if not amount.chosen:
        raise NothingMatched(
            f"{derivation.store.path}: no selected step is learned, so a control has nothing to match",
            hint="without --control the selection is written alone",
        )
    ((n_chosen,),) = derivation.connection.execute(
        f"SELECT count(DISTINCT episode_id) FROM {kept}"
    ).fetchall()
    if amount.n_both == amount.n_episodes == n_chosen:
        raise NothingMatched(
            f"{derivation.store.path}: the control would be the selection itself, all of its {n_chosen:,} "
            f"{'episode' if n_chosen == 1 else 'episodes'}",
            hint="select fewer episodes, or from a store with more; if more were left unselected, another "
            "--seed draws others; without --control the selection is written alone",
        )
    return amount


def write_control(
    derivation: Derivation, goal: Path, *, amount: Amount, chosen: Manifest, arguments: JsonObject
) -> Manifest:
    """Write the control that `draw_control` drew.

    Args:
        derivation: The one that `draw_control` got.
        goal: Path of the selection.
        amount: Result of `draw_control`.
        chosen: The manifest of the selection.
        arguments: Those of the selection.

    Raises:
        StoreError: The control's path exists, or cannot be written.
    """
    return derivation.write(
        control_goal(goal),
        verb="control",
        arguments={
            **arguments,
            "result": {
                "of": chosen.digest,
                "unit": amount.unit,
                "n_chosen": amount.chosen,
                "n_drawn": amount.drawn,
                "n_episodes_both": amount.n_both,
            },
        },
        kept=_DRAWN,
        left=_left(derivation),
    )


def is_same_control(there: Path, made: Path) -> bool:
    """Whether the store at `there` equals the control just made: same digest, commands and arguments."""
    try:
        before, now = open_store(there).manifest, open_store(made).manifest
    except StoreError:
        return False
    asked = [[(entry.verb, entry.arguments) for entry in each.lineage] for each in (before, now)]
    return before.digest == now.digest and asked[0] == asked[1]


def _measure(derivation: Derivation, barred: str) -> str:
    """Create a table of what each drawable episode trains, in tokens if all are known, else characters."""
    learned = f"FROM steps WHERE {_LEARNED}"
    ((n_unknown,),) = derivation.connection.execute(
        f"SELECT count(*) - count(n_output_tokens) {learned}"
    ).fetchall()
    amount = "length(CAST(completion AS VARCHAR))" if n_unknown else "n_output_tokens"
    derivation.connection.execute(
        f"CREATE OR REPLACE TEMP TABLE {_AMOUNTS} AS SELECT e.episode_id, e.purpose, "
        f"CAST(coalesce(s.amount, 0) AS BIGINT) AS amount FROM episodes AS e LEFT JOIN "
        f"(SELECT episode_id, sum({amount}) AS amount {learned} GROUP BY episode_id) AS s "
        f"ON e.episode_id = s.episode_id WHERE NOT {barred}"
    )
    return "characters of answers" if n_unknown else "output tokens"


def _draw(derivation: Derivation, kept: str, unit: str, seed: int) -> Amount:
    """Create the table of drawn episodes: the prefix of a random order closest in amount to the selection."""
    ask = derivation.connection.execute
    ((chosen, has_eval),) = ask(
        "SELECT CAST(coalesce(sum(amount), 0) AS BIGINT), coalesce(bool_or(purpose = 'eval'), false) "
        f"FROM {_AMOUNTS} WHERE episode_id IN (SELECT episode_id FROM {kept})"
    ).fetchall()
    pool = f"{_AMOUNTS}" if has_eval else f"(SELECT * FROM {_AMOUNTS} WHERE purpose <> 'eval')"
    in_order = f"ORDER BY {drawn('control', seed)}"
    ask(
        f"CREATE OR REPLACE TEMP TABLE {_DRAWN} AS WITH lots AS (SELECT episode_id, CAST(sum(amount) OVER "
        f"({in_order} ROWS UNBOUNDED PRECEDING) AS BIGINT) AS total, row_number() OVER ({in_order}) AS place "
        f"FROM {pool}), cut AS (SELECT place, total FROM lots ORDER BY abs(total - {chosen}), place LIMIT 1) "
        "SELECT lots.episode_id, cut.total FROM lots, cut WHERE lots.place <= cut.place"
    )
    ((total, n_episodes, n_both),) = ask(
        "SELECT coalesce(max(total), 0), count(*), count(*) FILTER (episode_id IN (SELECT episode_id FROM "
        f"{kept})) FROM {_DRAWN}"
    ).fetchall()
    return Amount(unit, chosen, total, n_both, n_episodes)


def _left(derivation: Derivation) -> list[Left]:
    rows = derivation.connection.execute(
        "SELECT CASE WHEN purpose = 'eval' AND NOT (SELECT coalesce(bool_or(purpose = 'eval'), false) FROM "
        f"episodes WHERE episode_id IN (SELECT episode_id FROM {_DRAWN})) THEN 'played for evaluation' "
        f"WHEN episode_id NOT IN (SELECT episode_id FROM {_AMOUNTS}) THEN {literal(RESERVED_REASON)} "
        "ELSE 'not drawn' END AS reason, count(*), CAST(sum(n_steps) AS BIGINT) FROM episodes "
        f"WHERE episode_id NOT IN (SELECT episode_id FROM {_DRAWN}) GROUP BY reason ORDER BY reason"
    ).fetchall()
    return [Left(reason=reason, n_episodes=n, n_steps=n_steps) for reason, n, n_steps in rows]
