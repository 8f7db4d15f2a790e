"""Intervals for statistics of a dataset: Wilson for shares, Student's t or the bootstrap for means.

Values come as sorted distinct values and their counts. The cost depends on the number of distinct values, and
no result depends on the order in which rows were read.
"""

from __future__ import annotations

import functools
import math
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

from trajkit.errors import RequestError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

CONFIDENCE = 0.95
"""Default share of intervals that contain the true value."""

_DRAWS_AT_ONCE = 4_000_000
"""Numbers that the bootstrap draws at a time: 32 MB."""


class Interval(NamedTuple):
    """An estimate with its bounds."""

    value: float
    low: float | None
    """Lower bound; None if there is none, as for a single value."""
    high: float | None
    """Upper bound."""
    n: int
    """Number of measured values."""


class Values(NamedTuple):
    """Measurements: the distinct values in ascending order, and how often each occurs."""

    value: npt.NDArray[np.float64]
    times: npt.NDArray[np.int64]

    @property
    def n(self) -> int:
        """Number of measurements."""
        return int(self.times.sum())

    @property
    def total(self) -> float:
        """Their sum, rounded once (Shewchuk's algorithm), so that the order does not matter."""
        return math.fsum((self.value * self.times).tolist())


def wilson(n_yes: int, n: int, *, confidence: float = CONFIDENCE) -> Interval | None:
    """Return a share with Wilson's score interval; None if `n` is 0.

    E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927). Its
    coverage also holds for few trials and shares near 0 and 1: Brown, Cai & DasGupta, Statistical Science 16
    (2001).

    Args:
        n_yes: Successes.
        n: Trials.
        confidence: Between 0 and 1.
    """
    _check_confidence(confidence)
    return None if n == 0 else Interval(n_yes / n, *wilson_bounds(n_yes / n, n, confidence=confidence), n)


def wilson_bounds(
    share: float, n: float, *, confidence: float = CONFIDENCE, degrees: float | None = None
) -> tuple[float, float]:
    """Return the bounds of Wilson's score interval.

    Args:
        share: Share of successes.
        n: Trials, above 0; fractional if it is an effective number.
        confidence: Between 0 and 1.
        degrees: Degrees of freedom of the variance that `n` comes from; None if `n` was counted.
    """
    quantile = (1 + confidence) / 2
    z = NormalDist().inv_cdf(quantile) if degrees is None else t_quantile(quantile, degrees)
    z2 = z * z
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = z / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    # exactly 0 and 1 at the ends, where rounding would leave a trace
    low = 0.0 if share == 0 else max(0.0, middle - half)
    high = 1.0 if share == 1 else min(1.0, middle + half)
    return low, high


def share_bounds(
    mean: float, variance: float, n: float, degrees: float, *, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return the bounds of a mean of values between 0 and 1; the bounds stay between 0 and 1, too.

    Wilson's interval with the number of trials that would give a share this variance: E. L. Korn & B. I.
    Graubard, "Confidence intervals for proportions with small expected number of positive counts", Survey
    Methodology 24 (1998), with Student's t because the variance is estimated.

    Args:
        mean: Between 0 and 1.
        variance: Variance of the mean.
        n: Number of trials, used where the variance is 0.
        degrees: Degrees of freedom of the variance.
        confidence: Between 0 and 1.
    """
    if variance <= 0 or not 0 < mean < 1:
        return wilson_bounds(min(max(mean, 0.0), 1.0), n, confidence=confidence)
    n_effective = max(1.0, mean * (1 - mean) / variance)  # no variable between 0 and 1 varies more
    return wilson_bounds(mean, n_effective, confidence=confidence, degrees=degrees)


def t_interval(values: Values, *, confidence: float = CONFIDENCE) -> Interval | None:
    """Return a mean ± Student's t of its standard error; None without values, no bounds for a single one.

    Student, "The probable error of a mean", Biometrika 6 (1908). It assumes that the mean is about normal,
    which holds for skewed values such as lengths from some dozens on; for fewer, see `bootstrap`. Bounds lie
    between 0 and 1 where all values do (`share_bounds`), and are not negative where no value is.

    Args:
        values: The measurements.
        confidence: Between 0 and 1.
    """
    _check_confidence(confidence)
    n = values.n
    if n == 0:
        return None
    mean = values.total / n
    if n == 1:
        return Interval(mean, None, None, n)
    squares = math.fsum(((values.value - mean) ** 2 * values.times).tolist())
    lowest, highest, variance = values.value[0], values.value[-1], squares / (n - 1) / n
    if variance > 0 and lowest >= 0 and highest <= 1:
        return Interval(mean, *share_bounds(mean, variance, n, n - 1, confidence=confidence), n)
    half = t_quantile((1 + confidence) / 2, n - 1) * math.sqrt(variance)
    return Interval(mean, max(mean - half, 0.0) if lowest >= 0 else mean - half, mean + half, n)


def bootstrap(
    values: Values, *, resamples: int, seed: int, confidence: float = CONFIDENCE
) -> Interval | None:
    """Return a mean with the bootstrap's percentile interval; None without values, no bounds for one value.

    B. Efron, "Bootstrap methods: another look at the jackknife", Annals of Statistics 7 (1979). A resample is
    drawn as the count of each distinct value (a multinomial draw), which is equivalent and cheaper.

    Args:
        values: The measurements.
        resamples: Number of resamples.
        seed: The same seed gives the same bounds.
        confidence: Between 0 and 1.
    """
    _check_confidence(confidence)
    import numpy as np

    n = values.n
    if n == 0:
        return None
    mean = values.total / n
    if n == 1:
        return Interval(mean, None, None, n)
    chance = np.random.default_rng(seed)
    share = values.times / n
    at_once = max(1, _DRAWS_AT_ONCE // len(share))
    means = np.concatenate(
        [
            chance.multinomial(n, share, size=min(at_once, resamples - done)) @ values.value / n
            for done in range(0, resamples, at_once)
        ]
    )
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(mean, float(low), float(high), n)


def effective_size(weights: Values) -> float | None:
    """Return the effective sample size of weights, (Σw)² / Σw²; None if no weight is above 0.

    L. Kish, "Survey Sampling" (1965), §11.7. Weights of 0 and below are ignored.
    """
    positive = weights.value > 0
    value, times = weights.value[positive], weights.times[positive]
    if not len(value):
        return None
    scaled = value / value.max()  # squares of tiny or huge weights would under- or overflow
    total = math.fsum((scaled * times).tolist())
    return total * total / math.fsum((scaled * scaled * times).tolist())


def entropy_bits(frequencies: Values) -> float:
    """Return Shannon's entropy in bits of categories, given how many occur how often; 0 for one category.

    C. E. Shannon, "A mathematical theory of communication", Bell System Technical Journal 27 (1948).
    """
    total = frequencies.total
    parts = zip(frequencies.value.tolist(), frequencies.times.tolist(), strict=True)
    return abs(math.fsum(-times * n / total * math.log2(n / total) for n, times in parts if n))


@functools.lru_cache(maxsize=4096)
def t_quantile(probability: float, degrees: float) -> float:
    """Return the quantile of Student's t for a probability above 0.5, with these degrees of freedom.

    Found by bisection of the distribution function, which is an incomplete beta function (Abramowitz & Stegun
    26.7.1).
    """
    low, high = 0.0, 2.0
    while _t_below(high, degrees) < probability:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_below(middle, degrees) < probability else (low, middle)
    return (low + high) / 2


def _t_below(t: float, degrees: float) -> float:
    return 1 - _beta_share(degrees / (degrees + t * t), degrees / 2, 0.5) / 2


def _beta_share(x: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function, by its continued fraction where it converges fast."""
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta_share(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    return front / (a * _fraction(x, a, b))


def _fraction(x: float, a: float, b: float) -> float:
    """Evaluate DLMF 8.17.22 forwards by Lentz's method: 1 + d1/(1 + d2/(1 + …))."""
    tiny = 1e-300
    whole, upper, lower = 1.0, 1.0, 0.0
    for m in range(1, 10_000):
        k, odd = divmod(m, 2)
        if odd:
            term = -(a + k) * (a + b + k) * x / ((a + 2 * k) * (a + 2 * k + 1))
        else:
            term = k * (b - k) * x / ((a + 2 * k - 1) * (a + 2 * k))
        lower = 1 / ((1 + term * lower) or tiny)
        upper = (1 + term / upper) or tiny
        whole *= upper * lower
        if abs(upper * lower - 1) < 1e-15:
            break
    return whole


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise RequestError(f"the confidence {confidence:g} is not between 0 and 1", hint="such as 0.95")
