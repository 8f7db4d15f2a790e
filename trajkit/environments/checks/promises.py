"""The checks of an environment. Each plays a few episodes and reports what it found.

No check depends on a particular environment.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from trajkit.environments.base import Environment, HasExpert, Result, step_limit
from trajkit.environments.checks.trace import Player, Trace, difference, play
from trajkit.environments.checks.trial import Finding, Trial, failed, passed, skipped, warning
from trajkit.environments.guard import RETURN_NAME, TEXT_HASH
from trajkit.errors import RolloutError
from trajkit.schema.success import parse_success

ODD_ANSWERS = (None, "", "\n", "fly away", "你好", "{}", "x" * 10_000)
"""Unusual answers of an agent, which must not break an environment."""

_SLOW_STEP_S, _SLOW_RESET_S = 0.02, 1.0
_MEASURED_S = 0.5
_MOST_ACTIONS = 30
"""Maximum number of legal actions to try."""


def begins(trial: Trial) -> Finding:
    """Every seed starts with a mission and an observation."""
    world = trial.world()
    starts = [world.reset(seed) for seed in trial.seeds]
    if blank := [
        seed for seed, start in zip(trial.seeds, starts, strict=True) if not start.observation.strip()
    ]:
        return warning(f"the first observation of seed {blank[0]} is empty")
    return passed(f"mission of seed {trial.seeds[0]}: {_quoted(starts[0].mission)}")


def plays(trial: Trial) -> Finding:
    """Random actions work, and the results have the right types."""
    n_steps = sum(len(trace.results) for trace in trial.traces)
    return passed(f"{len(trial.traces)} episodes, {n_steps} steps of random actions")


def ends(trial: Trial) -> Finding:
    """Every episode ends, at the latest at the stated step limit."""
    world = trial.world()
    for trace in trial.traces:
        world.reset(trace.seed)
        limit = step_limit(world)
        whole = trace
        if not trace.is_over and limit is not None and limit > trial.n_steps:
            whole = play(world, trace.seed, n_steps=limit)
        n_steps = len(whole.results)
        if not whole.is_over:
            said = "although max_steps requires it" if limit is not None else "and states no limit"
            return failed(
                f"seed {trace.seed} did not end in {n_steps} steps, {said}",
                "return truncated=True at the environment's step limit, and state the limit as max_steps",
            )
        if limit is not None and whole.results[-1].truncated and n_steps != limit:
            return failed(f"seed {trace.seed} was truncated after {n_steps} steps; max_steps is {limit}")
    lengths = [len(trace.results) for trace in trial.traces]
    return passed(f"after {min(lengths)} to {max(lengths)} steps; {_limit(world)}")


def _limit(world: Environment) -> str:
    limit = step_limit(world)
    return "it states no max_steps" if limit is None else f"max_steps {limit}"


def kinds_of_end(trial: Trial) -> Finding:
    """The step limit gives `truncated`; any other end gives `terminated`."""
    over = [trace for trace in trial.traces if trace.is_over]
    ends = [(trace.results[-1].terminated, trace.results[-1].truncated) for trace in over]
    tally = f"{sum(t for t, _ in ends)} terminated, {sum(c for _, c in ends)} truncated"
    unrewarded = [
        trace for trace in over if trace.results[-1].reward <= 0 and not trace.results[-1].truncated
    ]
    lengths = {len(trace.results) for trace in unrewarded}
    if len(unrewarded) == len(over) >= 3 and len(lengths) == 1 and max(lengths) > 1:
        return warning(
            f"every episode was terminated after exactly {max(lengths)} steps",
            "if that is a step limit, return truncated=True instead: a task that is cut off has not failed",
        )
    return passed(tally)


def same_seed(trial: Trial) -> Finding:
    """The same seed and actions give the same episode: again, in reverse order, and in another instance."""
    world, other = trial.world(), trial.world()
    for trace in reversed(trial.traces):
        for how, again in (("again", world), ("in another environment", other), ("once more", world)):
            if found := difference(trace, play(again, trace.seed, n_steps=trial.n_steps)):
                return _differs(f"seed {trace.seed} played {how} differs: {found}")
    return passed(f"{len(trial.traces)} episodes, each played four times")


def fresh_process(trial: Trial) -> Finding:
    """The same seed and actions give the same episode in a new process."""
    for trace, there in zip(trial.traces, trial.elsewhere.traces, strict=True):
        if found := difference(trace, there):
            return _differs(f"seed {trace.seed} differs in a fresh process: {found}")
    return passed(f"{len(trial.traces)} episodes")


def _differs(detail: str) -> Finding:
    return failed(
        detail,
        "draw everything from random.Random(seed): no clock, no hash() of text, no order of a set, "
        "no state of the previous episode",
    )


def state_hash(trial: Trial) -> Finding:
    """There is an initial-state hash, and it differs when the initial states differ."""
    hashes = {trace.start.initial_state_hash for trace in trial.traces}
    if not all(hashes):
        return failed("there is no initial-state hash")
    detail = f"{len(hashes)} of {len(trial.traces)} seeds differ"
    if not next(iter(hashes)).startswith(TEXT_HASH):
        return passed(detail)
    return passed(
        f"{detail}; made of task, mission and first text",
        "if two worlds can have the same first text, give Start an initial_state_hash",
    )


def seeds_differ(trial: Trial) -> Finding:
    """Different seeds give different initial states."""
    if len(trial.seeds) < 2:
        return skipped("one seed only")
    n_starts = len({trace.start for trace in trial.traces})
    if n_starts == 1:
        return warning(
            f"all {len(trial.seeds)} seeds begin alike",
            "use the seed given to reset, or distinguish hidden states by an initial_state_hash",
        )
    return passed(f"{n_starts} different beginnings of {len(trial.seeds)}")


def two_at_once(trial: Trial) -> Finding:
    """Two instances that play at the same time do not affect each other."""
    first, second = trial.traces[0], trial.traces[-1]
    players = [Player(trial.world(), first.seed), Player(trial.world(), second.seed)]
    for _ in range(trial.n_steps):
        for player in players:
            if not player.is_over:
                player.step()
        if all(player.is_over for player in players):
            break
    for alone, player in zip((first, second), players, strict=True):
        if found := difference(alone, player.trace()):
            return failed(
                f"seed {alone.seed} differs when another episode is played beside it: {found}",
                "keep state in self, not in the module or the class; use random.Random(seed), not random",
            )
    return passed(f"seeds {first.seed} and {second.seed} side by side")


def silent(trial: Trial) -> Finding:
    """Nothing is printed to stdout."""
    hint = "print(..., file=sys.stderr), or logging; results of a command go to stdout"
    if escaped := trial.elsewhere.escaped:
        return failed(f"this reached stdout past Python's sys.stdout: {_first_line(escaped)}", hint)
    if printed := trial.elsewhere.printed:
        return failed(f"it prints, which a rollout sends to stderr: {_first_line(printed)}", hint)
    return passed("nothing")


def legal_actions(trial: Trial) -> Finding:
    """Every legal action is a text, is unique, and is executed as it is."""
    offered = [actions for trace in trial.traces for actions in trace.legal]
    if not any(offered):
        return skipped("any text is an action")
    for actions in offered:
        if len(set(actions)) != len(actions) or not all(action.strip() for action in actions):
            return failed(f"an action is empty or duplicate: {actions!r}")
    world, seed = trial.world(), trial.seeds[0]
    world.reset(seed)
    for action in world.legal_actions()[:_MOST_ACTIONS]:
        world.reset(seed)
        result = world.step(action)
        if (result.action_executed, result.action_valid) != (action, True):
            valid = "valid" if result.action_valid else "invalid"
            return failed(f"the legal action {action!r} was executed as {result.action_executed!r}, {valid}")
    return passed(f"{len(world.legal_actions() or offered[0])} actions, executed unchanged")


def odd_answers(trial: Trial) -> Finding:
    """No text breaks the environment, and invalid actions are marked."""
    world, rule = trial.world(), trial.info.rule
    for text in ODD_ANSWERS:
        world.reset(trial.seeds[0])
        legal = world.legal_actions()
        result = world.step(text)
        if legal and text not in legal and result.action_valid:
            return failed(f"{_quoted(text)} is not a legal action, but is marked as valid")
        if rule is not None and text not in rule.actions and result.action_executed != rule.default:
            return failed(f"{_quoted(text)} was executed as {result.action_executed!r}, not the default")
    return passed(f"{len(ODD_ANSWERS)} of them, such as none at all and 10,000 characters")


def numbers(trial: Trial) -> Finding:
    """Rewards and statistics are finite, and the names of the statistics do not change."""
    world = trial.world()
    world.reset(trial.seeds[0])
    names = tuple(world.statistics())
    for trace in trial.traces:
        wrong = [reward for reward in (result.reward for result in trace.results) if not _is_finite(reward)]
        wrong += [score for score in trace.scores.values() if not _is_finite(score)]
        if wrong:
            return failed(f"seed {trace.seed}: {wrong[0]!r} is not a finite number")
        if set(trace.scores) != set(names):
            changed = ", ".join(sorted(trace.scores.keys() ^ set(names)))
            return failed(f"seed {trace.seed} does not end with the statistics that it began with: {changed}")
    others = ", ".join(trial.unlisted)
    hint = f"numbers in info that are not metrics: {others} (--env-set statistics=...)" if others else None
    return passed(f"metrics: {', '.join((*names, RETURN_NAME))}", hint)


def _is_finite(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def success(trial: Trial) -> Finding:
    """The condition for success can be evaluated, and not every episode is a success."""
    rule = parse_success(trial.info.success)
    known = (*trial.traces[0].scores, RETURN_NAME)
    if rule.metric not in known:
        return failed(
            f"success is {trial.info.success!r}, and there is no statistic {rule.metric!r}",
            f"statistics: {', '.join(known)}",
        )
    n_successes = sum(rule.holds(_metrics(trace)) for trace in trial.traces)
    detail = f"{trial.info.success}: {n_successes} of {len(trial.traces)} random episodes"
    if n_successes == len(trial.traces) > 1:
        return warning(detail, "there is nothing to learn where random actions always succeed")
    return passed(detail)


def _metrics(trace: Trace) -> dict[str, float]:
    return trace.scores | {RETURN_NAME: trace.total_reward}


def turns(trial: Trial) -> Finding:
    """A step before the start or after the end is refused; a reset works at any time."""
    world, trace = trial.world(), trial.traces[0]
    if not _refuses_step(world):
        return failed("a step before the first reset is not refused")
    if trace.is_over:
        play(world, trace.seed, n_steps=trial.n_steps)
        if not _refuses_step(world):
            return failed("a step after the end is not refused")
    world.reset(trial.seeds[-1])
    world.step(None)
    if found := difference(trace, play(world, trace.seed, n_steps=trial.n_steps)):
        return _differs(f"after an episode that was left in the middle, seed {trace.seed} differs: {found}")
    return passed("refused before the beginning and after the end")


def _refuses_step(world: Environment) -> bool:
    try:
        world.step("anything")
    except RolloutError:
        return True
    return False


def expert(trial: Trial) -> Finding:
    """The expert solves the task with legal actions."""
    world = trial.world()
    if not isinstance(world, HasExpert):
        return skipped("it has no expert")
    rule, unsolved, lengths = parse_success(trial.info.success), [], []
    for seed in trial.seeds:
        world.reset(seed)
        results: list[Result] = []
        while len(results) < trial.n_steps and not (
            results and (results[-1].terminated or results[-1].truncated)
        ):
            action = world.expert_action()
            results.append(world.step(action))
            if not results[-1].action_valid:
                return failed(f"seed {seed} step {len(results) - 1}: its {action!r} is not a legal action")
        total = sum(result.reward for result in results)
        lengths.append(len(results))
        if not rule.holds(world.statistics() | {RETURN_NAME: total}):
            unsolved.append(seed)
    detail = f"solves {len(lengths) - len(unsolved)} of {len(lengths)} seeds"
    if len(unsolved) == len(lengths):
        return failed(f"{detail}, such as seed {unsolved[0]} in {lengths[0]} steps")
    if unsolved:
        return warning(f"{detail}; not {unsolved[0]}")
    return passed(f"{detail}, in {min(lengths)} to {max(lengths)} steps")


def closing(trial: Trial) -> Finding:
    """A second `close` does nothing, even in the middle of an episode."""
    world = trial.world()
    world.reset(trial.seeds[0])
    world.close()
    world.close()
    if (error := getattr(world, "close_error", None)) is not None:
        raise error
    trial.world().close()
    return passed("twice, and without an episode")


def speed(trial: Trial) -> Finding:
    """A step is fast: all episodes of a rollout run in one thread."""
    world, n_steps, seconds, resets = trial.world(), 0, 0.0, 0.0
    for seed in trial.seeds:
        began = time.perf_counter()
        player = Player(world, seed)
        resets += time.perf_counter() - began
        began = time.perf_counter()
        used = 0.0
        while not player.is_over and used < _MEASURED_S / len(trial.seeds):
            player.step()
            n_steps += 1
            used = time.perf_counter() - began
        seconds += used
    step_s, reset_s = seconds / n_steps, resets / len(trial.seeds)
    detail = f"{_duration(step_s)} a step, {_duration(reset_s)} a reset"
    if step_s > _SLOW_STEP_S or reset_s > _SLOW_RESET_S:
        return warning(detail, "meanwhile all other episodes of the rollout wait")
    return passed(detail)


def _duration(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs" if seconds < 0.001 else f"{seconds * 1e3:,.1f} ms"


def _first_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()] or [text]
    return _quoted(lines[0]) + (f" and {len(lines) - 1} more lines" if len(lines) > 1 else "")


def _quoted(text: str | None) -> str:
    return repr(text if text is None or len(text) <= 60 else text[:59] + "…")


CHECKS: dict[str, Callable[[Trial], Finding]] = {
    "begins": begins,
    "plays": plays,
    "episodes end": ends,
    "terminated or truncated": kinds_of_end,
    "same seed, same world": same_seed,
    "same in a fresh process": fresh_process,
    "initial-state hash": state_hash,
    "seeds differ": seeds_differ,
    "two at once": two_at_once,
    "nothing on stdout": silent,
    "legal actions": legal_actions,
    "odd answers": odd_answers,
    "numbers": numbers,
    "success": success,
    "turns": turns,
    "expert": expert,
    "closing": closing,
    "speed": speed,
}
"""All checks by name, in the order in which they run."""

GATES = ("begins", "plays")
"""If one of these fails, the other checks are skipped."""
