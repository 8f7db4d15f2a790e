"""Keep the steps of other functions as context: a tuned model answers for one function of the gateway."""

from __future__ import annotations

from pathlib import Path

from trajkit.curation.derive import deriving
from trajkit.errors import NothingMatched, RequestError
from trajkit.schema import Left, LineageEntry
from trajkit.store.engine import literal

_REASON = "another function"


def only_function(path: str | Path, goal: Path, function: str) -> LineageEntry:
    """Write a store in which only the steps of one function are learned.

    The others stay where they are, with `loss_weight` 0 and a `mask_reason`: later steps keep their prompts.

    Args:
        path: The store, or `sample:NAME`.
        goal: The folder to write.
        function: The function whose steps are learned.

    Raises:
        RequestError: No step is of this function; the hint lists the store's functions.
        NothingMatched: No step of this function is learned.
        StoreError: `goal` exists, or a store cannot be read or written.
    """
    with deriving(path) as derivation:
        connection = derivation.connection
        ((names,),) = connection.execute(
            "SELECT list_sort(list(DISTINCT function_name)) FROM steps"
        ).fetchall()
        known = [name for name in names or () if name is not None]
        if function not in known:
            raise RequestError(
                f"no step of {derivation.store.path} is of the function {function!r}",
                hint=f"functions: {', '.join(known) or 'none'}",
            )
        other = f"coalesce(function_name, '') <> {literal(function)}"
        ((n_masked, n_learned),) = connection.execute(
            f"SELECT count(*) FILTER (WHERE {other}), count(*) FILTER (WHERE NOT {other})"
            " FROM steps WHERE loss_weight > 0"
        ).fetchall()
        if not n_learned:
            raise NothingMatched(
                f"no step of {function!r} in {derivation.store.path} is learned",
                hint="`trajkit stats` shows the weights of the steps",
            )
        connection.execute(
            "CREATE OR REPLACE TEMP VIEW trajkit_function_steps AS SELECT * REPLACE ("
            f"CASE WHEN {other} THEN 0 ELSE loss_weight END AS loss_weight, "
            f"CASE WHEN {other} THEN coalesce(mask_reason, {literal(_REASON)}) ELSE mask_reason END"
            " AS mask_reason) FROM steps"
        )
        manifest = derivation.write(
            goal,
            verb="mask",
            arguments={"function": function},
            steps="trajkit_function_steps",
            masked=[Left(reason=_REASON, n_steps=n_masked)],
        )
        return manifest.lineage[-1]
