"""Answer many prompts together, in this thread, one token of each per step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from trajkit._core.lazy import need
from trajkit.models.generation.ask import Ask, Likely, Said, SaidToken
from trajkit.models.generation.model import LocalModel, Voice
from trajkit.models.generation.prefix import spread
from trajkit.models.generation.row import Row, failed, rows

_COLDEST = 1e-5
"""Temperatures below this count as 0."""


class Drawn(NamedTuple):
    """The next token of each row."""

    tokens: list[int]
    """Token ids."""
    logprobs: list[float]
    """Natural-log probability of each under the distribution it was drawn from: after mask, temperature and
    top-p. 0 at temperature 0, where the likeliest token has probability 1."""


def draw(
    logits: Any, temperatures: Sequence[float], top_ps: Sequence[float], uniforms: Sequence[float]
) -> Drawn:
    """Draw a token for each row, by inverting its cumulative distribution at a number in [0, 1).

    A row's token depends only on its own logits and number.

    Args:
        logits: float32 [rows, vocabulary]; minus infinity for forbidden tokens.
        temperatures: One per row; 0 takes the most likely token.
        top_ps: One per row: total probability of the likeliest tokens to keep.
        uniforms: One per row: a number in [0, 1).
    """
    torch = need("torch", extra="local")
    best = logits.argmax(dim=-1)
    if all(temperature < _COLDEST for temperature in temperatures):
        return Drawn(best.tolist(), [0.0] * len(temperatures))
    on = {"device": logits.device}
    heat = torch.tensor([max(each, _COLDEST) for each in temperatures], **on)
    chances = torch.softmax(logits / heat[:, None], dim=-1)
    if any(top_p < 1 for top_p in top_ps):
        chances = _likeliest(chances, torch.tensor(list(top_ps), **on))
    kind = torch.float32 if logits.device.type == "mps" else torch.float64  # Apple's GPUs lack float64
    cumulated = chances.cumsum(dim=-1, dtype=kind)
    total = cumulated[:, -1]
    at = torch.tensor(list(uniforms), dtype=cumulated.dtype, **on) * total
    drawn = torch.searchsorted(cumulated, at[:, None], right=True)[:, 0].clamp(max=logits.shape[-1] - 1)
    # at the edges, rounding can select a token with probability 0
    has_chance = chances.gather(1, drawn[:, None])[:, 0] > 0
    is_cold = torch.tensor([temperature < _COLDEST for temperature in temperatures], **on)
    found = torch.where(is_cold | ~has_chance, best, drawn)
    share = chances.gather(1, found[:, None])[:, 0].to(total.dtype) / total
    logprobs = share.log().clamp(max=0).masked_fill(is_cold, 0.0)
    return Drawn(found.tolist(), logprobs.tolist())


def _likeliest(chances: Any, shares: Any) -> Any:
    """Set the probability of all tokens outside the top-p share to 0."""
    ordered, places = chances.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(dim=-1) - ordered
    ordered = ordered.masked_fill(before >= shares[:, None], 0.0)
    return chances.new_zeros(chances.shape).scatter_(-1, places, ordered)


class Batch:
    """Answers of one model that are generated in parallel. Finished rows leave the batch.

    Args:
        rows: Rows of one voice. The common prefix of their prompts is computed once and cached.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = list(rows)
        """Rows that are not finished."""
        self.voice = rows[0].voice
        self.n_steps = 0
        """Number of steps: each row has as many new tokens."""
        self._past: Any = None
        self._seen: Any = None
        self._places: Any = None
        self._next: Any = None

    @property
    def is_over(self) -> bool:
        """Whether every answer is finished."""
        return not self.rows

    def step(self) -> list[Row]:
        """Add a token to each row, and return the rows that are finished."""
        torch = need("torch", extra="local")
        with torch.inference_mode():
            logits = self._read_prompts() if self._past is None else self._read_tokens()
            self._sample(logits)
            self.n_steps += 1
            return self._leave()

    def _read_prompts(self) -> Any:
        torch = need("torch", extra="local")
        places_of: dict[tuple[int, ...], int] = {}
        whose = [places_of.setdefault(row.prompt, len(places_of)) for row in self.rows]
        prompts = list(places_of)  # attempts at one seed begin with the same prompt
        kept = self.voice.prefixes.find(prompts)
        known = kept.n_tokens if kept else 0
        width = max(map(len, prompts)) - known
        fill = [known + width - len(prompt) for prompt in prompts]
        on = {"device": self.voice.device}
        tokens = torch.tensor(
            [[0] * n + list(prompt[known:]) for n, prompt in zip(fill, prompts, strict=True)], **on
        )
        seen = torch.tensor([[1] * known + [0] * n + [1] * (width - n) for n in fill], **on)
        places = (seen.cumsum(dim=1) - 1).clamp(min=0)[:, known:]
        past = spread(kept, len(prompts)) if kept else None
        logits, self._past = self.voice(tokens, seen, places, past)
        self.voice.prefixes.keep(prompts, known, self._past)
        if len(prompts) < len(self.rows):
            rows = torch.tensor(whose, **on)
            self._past.batch_select_indices(rows)
            logits, seen, places = logits[rows], seen[rows], places[rows]
        self._seen, self._places = seen, places[:, -1:]
        return logits

    def _read_tokens(self) -> Any:
        torch = need("torch", extra="local")
        self._seen = torch.cat([self._seen, self._seen.new_ones(len(self.rows), 1)], dim=1)
        self._places = self._places + 1
        logits, self._past = self.voice(self._next, self._seen, self._places, self._past)
        return logits

    def _sample(self, logits: Any) -> None:
        torch = need("torch", extra="local")
        asks = [row.ask for row in self.rows]
        drawn = draw(
            self._allowed(logits),
            [ask.temperature for ask in asks],
            [ask.top_p for ask in asks],
            [row.uniform() for row in self.rows],
        )
        reported = _reported(logits, self.rows, drawn.tokens)
        for row, token, logprob, chances in zip(self.rows, *drawn, reported, strict=True):
            try:
                row.add(token, logprob, chances)
            except BaseException as error:  # noqa: BLE001 - any failure ends this row only
                row.end(failed(error))
        self._next = torch.tensor(drawn.tokens, device=logits.device)[:, None]

    def _allowed(self, logits: Any) -> Any:
        """Return the logits, with minus infinity for each token that a row's grammar forbids."""
        bound = [place for place, row in enumerate(self.rows) if row.constraint is not None]
        if not bound:
            return logits
        torch, numpy = need("torch", extra="local"), need("numpy", extra="local")
        width = logits.shape[-1]
        bits = numpy.zeros((len(bound), (width + 31) // 32), dtype=numpy.int32)
        for each, place in zip(bits, bound, strict=True):
            row = self.rows[place]
            assert row.constraint is not None
            try:
                row.allowed.append(row.constraint.allow(each))
            except BaseException as error:  # noqa: BLE001 - any failure ends this row only
                row.end(failed(error))
        mask = numpy.unpackbits(bits.view(numpy.uint8), axis=1, bitorder="little", count=width)
        allowed = torch.from_numpy(mask.astype(bool)).to(logits.device)
        chosen = torch.tensor(bound, device=logits.device)
        logits = logits.clone()  # log-probabilities are reported from the original
        logits[chosen] = logits[chosen].masked_fill(~allowed, float("-inf"))
        return logits

    def _leave(self) -> list[Row]:
        torch = need("torch", extra="local")
        over = [row for row in self.rows if row.is_over]
        if not over:
            return over
        stay = [place for place, row in enumerate(self.rows) if not row.is_over]
        self.rows = [self.rows[place] for place in stay]
        if self.rows:
            chosen = torch.tensor(stay, device=self._next.device)
            self._past.batch_select_indices(chosen)
            self._seen, self._places = self._seen[chosen], self._places[chosen]
            self._next = self._next[chosen]
        else:
            self._past = self._seen = self._places = self._next = None
        return over


def _reported(logits: Any, rows: Sequence[Row], tokens: Sequence[int]) -> list[SaidToken | None]:
    """Return each token's log-probability and its likeliest alternatives, where they were requested."""
    reported: list[SaidToken | None] = [None] * len(rows)
    for place, row in enumerate(rows):
        if row.ask.n_logprobs is None:
            continue
        chances = logits[place].log_softmax(dim=-1)
        best = chances.topk(min(row.ask.n_logprobs, chances.shape[-1]))
        top = map(Likely, best.indices.tolist(), best.values.tolist())
        reported[place] = SaidToken(tokens[place], float(chances[tokens[place]]), tuple(top))
    return reported


SIDE_BY_SIDE = 128
"""Maximum rows per batch."""


def generate(model: LocalModel, asks: Sequence[Ask], *, side_by_side: int = SIDE_BY_SIDE) -> list[Said]:
    """Answer many prompts together, and return when all are answered.

    Args:
        model: The model.
        asks: The requests. Requests to one name are answered together.
        side_by_side: Maximum number of concurrent rows; memory grows with it.

    Returns:
        The answers, in the order of the requests.

    Raises:
        AskError: A request cannot be answered; then none is.
    """
    made = rows(model, asks)
    with model.lock:
        for group in by_voice(made):
            for start in range(0, len(group), side_by_side):
                batch = Batch(group[start : start + side_by_side])
                while not batch.is_over:
                    batch.step()
    return [row.answer() for row in made]


def by_voice(made: Sequence[Row]) -> list[list[Row]]:
    """Group rows by voice, in the order of the first row of each."""
    groups: dict[Voice, list[Row]] = {}
    for row in made:
        groups.setdefault(row.voice, []).append(row)
    return list(groups.values())
