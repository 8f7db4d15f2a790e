"""Let variants answer the same held-out prompts of a store, and report how they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trajkit._core.output import console
from trajkit._core.output.console import count, line, plural, talk
from trajkit._core.output.result import Result
from trajkit.commands.options.training import read_json
from trajkit.commands.options.types import StoreLike
from trajkit.commands.place import goal_of, remember_store, store_path, texts
from trajkit.errors import RequestError, TrajkitError

if TYPE_CHECKING:
    from trajkit.commands.comparison.contenders import Contender
    from trajkit.commands.comparison.local_contenders import Cast
    from trajkit.curation.scores.scorer import Scorer
    from trajkit.evaluation.answering import Answered, Work
    from trajkit.evaluation.estimates.compare import Comparison
    from trajkit.evaluation.prompts import Prompts
    from trajkit.evaluation.reports.object import Report
    from trajkit.rollouts.running.calling import Caller
    from trajkit.rollouts.running.limits import Prices

STOPPED_BY_A_LIMIT = 5
_TOKENS_OF_ANSWER = 300
"""Assumed tokens of an answer without a limit, as for a rollout."""
_CHARACTERS_PER_TOKEN = 3


@dataclass(frozen=True, repr=False)
class Replayed(Result):
    """Results of variants on held-out prompts; after a dry run only the plan."""

    work: Work
    """The requests, and how answers were scored."""
    leaks: tuple[str, ...]
    """What was not held out, if that was allowed."""
    unsure: tuple[str, ...]
    """What is unknown about the models behind the variants."""
    answered: Answered | None = None
    """How it went; None after a dry run."""
    report: Report | None = None
    """Results of the variants, and their differences; None after a dry run, or if nothing was answered."""
    path: Path | None = None
    """The evaluation store; None after a dry run, or if nothing was answered."""

    @property
    def exit_code(self) -> int:
        """5 if a limit stopped it, 1 if answers failed."""
        if self.answered is None:
            return 0
        return int(bool(self.answered.failures)) if self.answered.reached is None else STOPPED_BY_A_LIMIT

    def to_json(self) -> dict[str, Any]:
        """Every measure of each variant, and the differences; after a dry run the plan."""
        work, found, done = self.work, self.report, self.answered
        return {
            "store": None if self.path is None else str(self.path),
            "prompts": str(work.prompts.dataset.store.path),
            "scorer": work.scorer.identity._asdict(),
            "score": work.score,
            "by": list(work.prompts.by),
            "variants": list(work.models),
            "decodings": [str(one) for one in work.decodings],
            "n_prompts": work.prompts.n_prompts,
            "n_planned": work.n_answers,
            "n_answered": None if done is None else done.n_answered,
            "n_unscored": None if done is None else done.n_unscored,
            "failures": {} if done is None else dict(done.failures),
            "leaks": list(self.leaks),
            "unsure": list(self.unsure),
            "groups": [] if found is None else [one.model_dump(mode="json") for one in found.groups],
            "comparisons": []
            if found is None
            else [one.model_dump(mode="json") for one in found.comparisons],
            "notes": [*self._notes()],
        }

    def print_text(self) -> None:
        """Print the tables, then the notes."""
        if text := str(self):
            console.result_text(text)
        for note in self._notes():
            talk(note)

    def print_json(self) -> None:
        """Print one document, then the notes."""
        console.result_json(self.to_json())
        for note in self._notes():
            talk(note)

    def __str__(self) -> str:
        if self.report is None:
            return ""
        from trajkit.commands.evaluate import shown_table
        from trajkit.evaluation.reports.text import difference_table, group_table

        groups = group_table(self.report)
        headings = tuple("answers" if name == "episodes" else name for name in groups.headings)
        texts = [shown_table(groups._replace(headings=headings))]
        if self.report.comparisons:
            texts += ["", shown_table(difference_table(self._shown()))]
        return "\n".join((*texts, *(line(f"not held out: {leak}") for leak in self.leaks)))

    def __repr__(self) -> str:
        n = 0 if self.answered is None else self.answered.n_answered
        return f"<evaluation of {count(n)} of {plural(self.work.n_answers, 'answer')}>"

    def _repr_html_(self) -> str:
        from trajkit._core.output import notebook as html

        return html.framed([html.line(repr(self))]) if self.report is None else self.report._repr_html_()

    def _shown(self) -> list[Comparison]:
        """The differences except that of the prompts, which are the same for all."""
        comparisons = () if self.report is None else self.report.comparisons
        return [each for each in comparisons if each.metric != "n_input_tokens"]

    def _notes(self) -> Iterator[str]:
        from trajkit.evaluation.reports.text import notes

        done = self.answered
        if done is None:
            return
        for message, n in sorted(done.failures.items(), key=lambda each: -each[1]):
            yield f"failed: {plural(n, 'answer')}: {message}"
        if done.n_unscored:
            yield f"no score for {plural(done.n_unscored, 'answer')}: the scorer returned None"
        if done.reached is not None:
            yield f"{done.reached}; the same command with a higher limit continues"
        if self.report is not None:
            for note in (*notes(self._shown()), *self.report.notes):
                yield f"note: {note}"
        if self.path is not None:
            yield f"{self.path}  {plural(done.n_answered + sum(done.failures.values()), 'episode')}"


def replay(
    prompts: StoreLike,
    scorer: str | None,
    contenders: Sequence[Contender],
    *,
    steps: Literal["last", "all"],
    by: Sequence[str],
    decodings: Sequence[str],
    model_url: str | None,
    allow_leak: bool,
    options: Mapping[str, Any],
) -> Replayed:
    """Let every model answer the prompts of a store, score the answers, and compare.

    Args:
        prompts: The store.
        scorer: The function that scores an answer.
        contenders: The variants, each with a model.
        steps: Which prompts of an episode.
        by: Columns whose prompts belong together.
        decodings: How answers are sampled; none for greedy.
        model_url: The server of the models; None for this process.
        allow_leak: Also use prompts that a model has learned.
        options: Other options of the command, such as limits and folders.

    Raises:
        RequestError: There is no scorer or no such model, or a model has learned these prompts.
        ServiceError: The model does not answer.
        DataError: The scorer fails on every answer.
        NothingMatched: There is no prompt.
        StoreError: The store cannot be read, or the new one exists.
    """
    from trajkit._core.files import refuse_existing
    from trajkit.commands.comparison.contenders import lineage_in
    from trajkit.commands.comparison.local_contenders import cast_of_models
    from trajkit.curation.scores.scorer import Scorer
    from trajkit.evaluation.answering import Answering
    from trajkit.evaluation.prompts import Prompts, learned_prompts, shared_groups
    from trajkit.store.dataset import open_dataset

    if scorer is None:
        raise RequestError("no --scorer is given", hint="--scorer my.py:fn")
    runs_folder = Path(options["runs"])
    cast = cast_of_models(
        contenders, lineage_in(runs_folder), is_here=model_url is None, runs_folder=runs_folder
    )
    asked = Prompts(open_dataset(store_path(prompts)), which=steps, by=by)
    overlaps, exposure = learned_prompts(cast.behind.seen, asked)
    if overlaps and not allow_leak:
        raise RequestError(
            f"not held out: {'; '.join(map(str, overlaps))}",
            hint="`trajkit leak TRAIN STORE --drop eval` leaves such episodes out; --allow-leak uses them, "
            "and the result shows it",
        )
    leaks, unsure = tuple(map(str, overlaps)), tuple(map(str, exposure.unsure))
    goal = goal_of("evaluation", options["output"])
    refuse_existing(goal)
    for leak in leaks:
        talk(f"not held out (--allow-leak): {leak}")
    for text in unsure:
        talk(text)
    for path, (n_shared, n_all) in shared_groups(cast.behind.seen, asked).items():
        if n_shared:
            talk(f"note: {count(n_shared)} of {plural(n_all, 'group')} are also in {path}")
    caller = _caller(options, is_here=model_url is None)
    work = _work(asked, Scorer(scorer, per_step=True), cast, decodings, model_url, caller, options)
    _plan(work, cast, model_url, caller.budget.prices)
    if options["dry_run"]:
        talk("dry run: no model was called")
        return Replayed(work, leaks, unsure)
    if model_url is not None:
        _confirm(cast, model_url, yes=options["yes"])
    answering = Answering(work, new_run=options["new_run"])
    if answering.n_before:
        talk(f"{plural(answering.n_before, 'answer')} of an earlier run are kept; --new-run repeats them")
    with console.Meter() as meter:
        done = answering.run(lambda n, of: meter.show("answering", n, of))
    if not done.n_answered:
        reached = f": {done.reached}" if done.reached else ""
        raise TrajkitError(f"nothing was answered{reached}", hint="; ".join(done.failures) or None)
    models = dict(cast.behind.models)
    answering.write(goal, models=models, leaks=leaks, unsure=unsure)
    remember_store(goal, is_evaluation=True)
    from trajkit.evaluation.report import report

    return Replayed(work, leaks, unsure, done, report(goal), goal)


def _work(
    prompts: Prompts,
    scorer: Scorer,
    cast: Cast,
    decodings: Sequence[str],
    model_url: str | None,
    caller: Caller,
    options: Mapping[str, Any],
) -> Work:
    from trajkit.evaluation.answering import Work, chat_models
    from trajkit.rollouts.decoding import GREEDY, as_decoding

    return Work(
        prompts=prompts,
        scorer=scorer,
        score=scorer.identity.spec.rpartition(":")[2].rpartition(".")[2],
        models=chat_models(cast.players, model_url, caller),
        identities={one.name: one.model_identity(is_here=model_url is None) for one in cast.players},
        decodings=tuple(dict.fromkeys(map(as_decoding, decodings or (GREEDY,)))),
        options={name: read_json(text) for name, text in texts(options["policy_set"]).items()},
        run_seed=options["run_seed"],
        concurrency=caller.throttle.most,
    )


def _caller(options: Mapping[str, Any], *, is_here: bool) -> Caller:
    from trajkit._core.settings import project
    from trajkit.commands.options.playing import fields_of
    from trajkit.commands.options.request import checked
    from trajkit.rollouts.options import CONCURRENCY, LOCAL_CONCURRENCY, Options
    from trajkit.rollouts.running.calling import Caller
    from trajkit.rollouts.running.limits import Budget

    chosen = checked(Options, fields_of("prompts", options))
    settings = project()
    prices = None if is_here else chosen.prices(settings.input_price, settings.output_price)
    return Caller(
        concurrency=chosen.concurrency or (LOCAL_CONCURRENCY if is_here else CONCURRENCY),
        timeout_s=chosen.timeout_s,
        retries=chosen.retries,
        budget=Budget(chosen.limits, prices),
    )


def _plan(work: Work, cast: Cast, model_url: str | None, prices: Prices | None) -> None:
    """Print the requests, and for a service what they may cost."""
    ways = ", ".join(str(one) for one in work.decodings)
    names = ", ".join(work.models)
    talk(f"{plural(work.prompts.n_prompts, 'prompt')} of {work.prompts.dataset.store.path}: {names}; {ways}")
    if model_url is None:
        return
    n_each = work.n_answers // work.prompts.n_prompts
    n_in = n_each * work.prompts.n_characters // _CHARACTERS_PER_TOKEN
    n_out = work.n_answers * _TOKENS_OF_ANSWER
    cost = "" if prices is None else f", about {prices.cost_usd(n_in, n_out):.2f} USD"
    talk(
        f"calls {', '.join(one.model for one in cast.players)}: {plural(work.n_answers, 'request')}, about "
        f"{count(n_in)} tokens in and {count(n_out)} out{cost}"
    )


def _confirm(cast: Cast, model_url: str, *, yes: bool) -> None:
    from trajkit.rollouts.gateway.paid import is_here

    if is_here(model_url):
        return
    models = ", ".join(one.model for one in cast.players)
    console.confirm(
        "Ask?",
        yes=yes,
        verb="calls it",
        refused="no model was called",
        unasked=f"this calls a model that may cost money: {models}",
    )
