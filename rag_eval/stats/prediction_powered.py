"""The mean that people would find, from their judgements of a sample and a model's of everything."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.metric import Values
from rag_eval.stats.bootstrap import CONFIDENCE, Estimate
from rag_eval.stats.scores import Units

ROUNDING = 1e-18


@dataclass(frozen=True, slots=True)
class PredictionPowered:
    """A mean by the sample corrected with the model (``powered``), by the sample alone, and by the model alone.

    ``weight`` is how much of the model is used, from 0 (nothing: its judgements tell nothing) to 1. The interval of the
    model alone is that of its own mean, which is another one as far as the model errs.
    """

    powered: Estimate
    human: Estimate
    model: Estimate
    weight: float


def prediction_powered(
    predicted: Values, judged: Values, units: Units, weights: Values | None = None
) -> PredictionPowered:
    """Return the prediction-powered mean of what people judged at random, with its 95 % interval.

    ``predicted`` has a model's value f, from 0 to 1, of each of N things, ``judged`` that of people, y, of n of them
    that were drawn at random, and NaN of the others; what is wanted is the mean of w · y over all, w being the
    ``weights`` (None: 1). ``units`` are what is independent of each other: things of one document or question are not.

    With the sample S and the weight λ of the model the mean is mean(λwf) + mean over S of (wy - λwf): what the model
    errs by in the sample is taken off again, so that no error of it, however correlated, biases the mean. A thing
    contributes a + λb to its deviation, with a = (wy - mean over S of wy) / n in the sample and 0 outside, and
    b = (wf - mean of wf) / N, less (wf - mean over S of wf) / n in the sample. λ = -Σab / Σb², within 0 and 1, makes
    Σ(a + λb)² least (PPI++: A. N. Angelopoulos, J. C. Duchi, T. Zrnic, 2023); any λ is right, the best is narrowest.
    The variance is G / (G - 1) · Σ u², u being the sum of a + λb over each of the G units of the sample and over each
    other one (cluster-robust), and the ends are Student's with G - 1 degrees. They are as far out as if one judgement
    more, of a thing of the usual weight m, were the opposite of what was found: m / n further, with m² / n² added to
    the variance, m being the root of the mean of w² where w is not 0 (M. P. Fay, E. J. Feuer, 1997, do so for rates).
    Without it an interval is too narrow where nearly all judgements agree.

    λ = 0 is the sample alone. There are no ends where the sample is of one unit. Raises ``ConfigurationError`` when
    nothing was judged, or the shapes disagree.
    """
    sampled = np.isfinite(judged)
    n, total = int(sampled.sum()), len(predicted)
    if not n or not total == len(judged) == len(units.numbers):
        raise ConfigurationError(
            f"{total} predictions came with {len(judged)} judgements, {n} of them made: give a judgement, or NaN, for "
            "each prediction, and one judgement at least"
        )
    each = np.ones(total) if weights is None else weights
    truth, guess = np.where(sampled, judged, 0.0) * each, predicted * each
    human, seen, everywhere = (float(found) for found in (truth.sum() / n, guess @ sampled / n, guess.mean()))
    of_people = (truth - human) * sampled / n
    of_model = (guess - everywhere) / total - (guess - seen) * sampled / n
    spread = float(of_model @ of_model)
    # Where people judged everything, or the model says the same of all, what is left is rounding.
    is_told = spread > ROUNDING * float(guess @ guess) / n**2
    weight = float(np.clip(-(of_people @ of_model) / spread, 0.0, 1.0)) if is_told else 0.0
    one_more = float(np.sqrt(each @ each / max(1, int((each != 0).sum())))) / n

    def estimate(mean: float, deviations: Values, seen: NDArray[np.bool_], more: float) -> Estimate:
        groups, low, high = len(np.unique(units.numbers[seen])), None, None
        if groups > 1:
            by_unit = np.bincount(units.numbers, deviations, units.count)
            error = np.sqrt(groups / (groups - 1) * float(by_unit @ by_unit) + more**2)
            reach = more + float(stdtrit(groups - 1, (1 + CONFIDENCE) / 2) * error)
            low, high = mean - reach, mean + reach
        return Estimate(mean, low, high, int(seen.sum()), groups, units.kind)

    return PredictionPowered(
        estimate(human + weight * (everywhere - seen), of_people + weight * of_model, sampled, one_more),
        estimate(human, of_people, sampled, one_more),
        estimate(everywhere, (guess - everywhere) / total, np.ones(total, bool), 0.0),
        weight,
    )
