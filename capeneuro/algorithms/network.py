"""A two-layer network that tells two classes apart, trained over all sites.

``sigmoid(v' [ReLU(W [x; 1]); 1])`` is the probability of class 1 [thesis 3.4, Fig.
3.4]. Each round releases the sites' mean of clipped gradients of the cross-entropy
[:func:`.gradients.network_gradient`] once, all layers together, and takes one
step, by gradient descent or Adam. First weights are of a fixed seed, so public. The
number of rounds is fixed before: T releases of mu / sqrt(T) each are mu together,
exactly, and nothing of the loss is released on the way. Noise and clipping make the
network surer than it should be, so one more release calibrates its probabilities
[:mod:`.probabilities`].

Constants were found by trial on 10,000 samples of two classes in 50 features and of a
census table (Adult) at epsilons of 0.1 and 0.5 [docs/results-network.md]. Adam divides
by what it measures of the gradient, so the clip sets the share of noise alone: 0.1 to 1
do much the same, and so does descent. Smaller steps at the end, and taking the noise's
energy off Adam's divisor, were worse; averages of the last iterates cost nothing.

# Differs from thesis 3.4: its epsilon is of one round and of each of four arrays. Its
code clips nothing and takes 64 samples a round, 500 times all: at an epsilon of 0.5
"per iteration" mu is 7.2 by the sensitivity that it states, an epsilon of 42 at delta =
0.01, and nothing is promised [docs/results-network.md]. Here epsilon is of the whole
study.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
import scipy

from capeneuro import linalg
from capeneuro.algorithms import probabilities
from capeneuro.algorithms.confidence import WIDTH
from capeneuro.algorithms.shown import brief
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.transport import Federation
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.clipping import scaled
from capeneuro.privacy.gradients import forward, layers, network_gradient
from capeneuro.privacy.queries import LARGEST_WEIGHT

Optimizer = Literal["adam", "gradient"]
# Steps that were best on the sets of docs/results-network.
LEARNING_RATES = {"adam": 0.1, "gradient": 10.0}
# Decays of Adam's averages and what keeps its divisor from 0 [Kingma & Ba 2015].
BETA1, BETA2, TINY = 0.9, 0.999, 1e-8
# Of the networks trained on noise alone.
PEOPLE = 1000
# Share of the rounds whose iterates are averaged.
AVERAGED = 0.2


@dataclass(frozen=True)
class Network:
    """Result of :func:`network`.

    Parameters
    ----------
    hidden
        Weights W of the hidden layer on ``[x / norm_bound; 1]``, the last column its
        biases, shape (n_hidden, n_features + 1).
    output
        Weights v of the output, the last its bias, shape (n_hidden + 1,).
    norm_bound
        Public constant that the features were divided by.
    trace
        Norm of the released gradient in each round, noise and all, (n_rounds,).
    n_rounds
        Gradients that were released.
    intercept, slope
        Calibration: log-odds of class 1 are ``intercept + slope * v' a`` for the
        network's output ``v' a``. 0 and 1 before :func:`calibrated`.
    slope_error
        Standard error of ``slope`` by noise, sampling and bins; NaN before calibration.
    """

    __repr__ = brief

    hidden: np.ndarray
    output: np.ndarray
    norm_bound: float
    trace: np.ndarray
    n_rounds: int
    intercept: float = 0.0
    slope: float = 1.0
    slope_error: float = np.nan

    @property
    def slope_interval(self) -> np.ndarray:
        """95% interval of the calibration's slope, (2,)."""
        return self.slope + self.slope_error * np.array([-WIDTH, WIDTH])

    def log_odds(self, X: np.ndarray) -> np.ndarray:
        """Log-odds of class 1 of each sample; post-processing.

        Parameters
        ----------
        X
            Features without the label, shape (n_features, N). A sample that is not
            finite counts as zero, as in training.

        Returns
        -------
        numpy.ndarray
            Shape (N,).

        Raises
        ------
        ValueError
            If the number of features is not that of the training data.
        """
        D = self.hidden.shape[1] - 1
        if X.shape[0] != D:
            raise ValueError(f"X must have {D} features as rows, got {X.shape[0]}")
        x = scaled(X, self.norm_bound)
        raw = self.output @ forward(x, self.hidden, self.output).hidden
        return self.intercept + self.slope * raw

    def probabilities(self, X: np.ndarray) -> np.ndarray:
        """Calibrated probability of class 1 of each sample, (N,).

        Row: probability

        Parameters
        ----------
        X
            As in :meth:`log_odds`.

        Raises
        ------
        ValueError
            Before calibration, when a network is surer than it should be.
        """
        if not np.isfinite(self.slope_error):
            raise ValueError(
                "network: probabilities need a calibration; call `calibrated` first, "
                "or use `predict`"
            )
        return scipy.special.expit(self.log_odds(X))

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Class 0 or 1 of each sample, shape (N,); see :meth:`log_odds`."""
        return (self.log_odds(X) > 0).astype(int)

    def slopes(self) -> np.ndarray:
        """Mean slope of the log-odds by each feature of a row, (D,); post-processing.

        Over rows that are normal about the middle of all features' bounds, of norms
        about the norm bound: the hidden unit h is active for a share
        ``Phi(b_h sqrt(D) / |w_h|)`` of them. At the middle alone, near which most units
        have their kinks, slopes would be those of an arbitrary half of the units.
        """
        W, b = self.hidden[:, :-1], self.hidden[:, -1]
        deviation = np.linalg.norm(W, axis=1) / np.sqrt(W.shape[1])
        active = scipy.special.ndtr(b / np.maximum(deviation, linalg.TINY))
        return self.slope * (self.output[:-1] * active) @ W / self.norm_bound


def network(
    federation: Federation,
    mechanism: Mechanism,
    n_features: int,
    norm_bound: float,
    n_hidden: int = 20,
    n_rounds: int = 60,
    optimizer: Optimizer = "adam",
    learning_rate: float | None = None,
    clip: float = 0.3,
    *,
    first_weights: float = 1.0,
    seed: int = 0,
    first_round: int = 0,
    progress: Callable[[range], range] = lambda rounds: rounds,
) -> Network:
    """Train a two-layer classifier over all sites [thesis 3.4].

    Parameters
    ----------
    federation
        Sites whose columns are ``[x; y]``, y 0 or 1 in the last row.
    mechanism
        How the gradient of a round is released.
    n_features
        Number D of features x, without the label.
    norm_bound
        Public constant that x, not y, is divided by: about the norm of a typical
        sample. First weights suit inputs of norm 1.
    n_hidden
        Units of the hidden layer, at most 1024; 10 are a little worse than 20, 40 no
        better.
    n_rounds
        Number T of rounds; the budget pays for all of them. 30 to 100 do much the same.
    optimizer
        ``"adam"`` or plain ``"gradient"`` descent.
    learning_rate
        Of each step; None: that of :data:`LEARNING_RATES`.
    clip
        Largest norm of one unit's gradient. First gradients have norms of about 1.
    first_weights
        Their size, over :func:`weights_at_first`. A tenth helps where a line separates
        the classes, and costs accuracy elsewhere [docs/results-network.md].
    seed
        Fixes the first weights; public.
    first_round
        Number of the first round; part of the identity of each request.
    progress
        Wraps the rounds, for example in a progress bar.

    Returns
    -------
    Network
        With the average weights of the last :data:`AVERAGED` of the rounds, not
        calibrated.

    Raises
    ------
    RoundFailed
        If too few sites answer; the same call goes on from there.

    Guarantee
    ---------
    One release of ``network_gradient`` per round (replace-one, 2 clip / n); the number
    of rounds is public. Steps and averages are post-processing.
    """
    paid = len(mechanism.releases) + n_rounds
    if mechanism.n_releases is not None:
        paid = min(paid, mechanism.n_releases)

    def released(w: np.ndarray, t: int) -> np.ndarray | None:
        if len(mechanism.releases) >= paid:
            return None  # void rounds are paid for, too, also an earlier run's
        parameters = {"weights": w, "norm_bound": float(norm_bound)}
        parameters["clip"] = float(clip)
        number, name = first_round + t, "network_gradient"
        return mechanism.answer(federation, name, parameters, number).value

    w = first_weights * weights_at_first(n_features, n_hidden, seed)
    w, trace = _descend(
        released, w, progress(range(n_rounds)), optimizer, learning_rate
    )
    W, v = layers(w, n_features + 1)
    return Network(W, v, float(norm_bound), trace, len(trace))


def calibrated(
    network: Network, federation: Federation, mechanism: Mechanism
) -> Network:
    """Calibrate a network's probabilities, by one more release over all sites.

    Parameters
    ----------
    network
        From :func:`network`.
    federation
        The sites that it was trained over.
    mechanism
        How the counts are released.

    Returns
    -------
    Network
        The same one with its calibration.

    Raises
    ------
    RoundFailed
        If too few sites answer; the same call goes on from there.

    Guarantee
    ---------
    One release of ``log_odds_counts`` (replace-one, sqrt(2) / n); all else is
    post-processing.
    """
    w = np.concatenate([network.hidden.ravel(), network.output])
    parameters = {"weights": w, "norm_bound": network.norm_bound, "clip": 1.0}
    released = mechanism.answer(federation, "log_odds_counts", parameters)
    counts = released.value.reshape(2, -1)
    fit = probabilities.calibrate(counts, released.deviation, released.n_units)
    return replace(network, **vars(fit))


def _descend(
    gradient: Callable[[np.ndarray, int], np.ndarray | None],
    w: np.ndarray,
    rounds: Sequence[int],
    optimizer: Optimizer,
    learning_rate: float | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Average of the last weights, and the norms of the gradients on the way."""
    rate = LEARNING_RATES[optimizer] if learning_rate is None else learning_rate
    m, s = np.zeros((2, w.size))
    last, trace, n_last = [w], [], max(1, round(AVERAGED * len(rounds)))
    for t in rounds:
        g = gradient(w, t)
        if g is None:
            break
        trace.append(float(np.linalg.norm(g)))
        if optimizer == "adam":
            m, s = BETA1 * m + (1 - BETA1) * g, BETA2 * s + (1 - BETA2) * g**2
            scale = np.sqrt(s / (1 - BETA2 ** (t + 1))) + TINY
            g = m / (1 - BETA1 ** (t + 1)) / scale
        # Sites answer within these bounds only; no step of any use gets there.
        w = np.clip(w - rate * g, -LARGEST_WEIGHT, LARGEST_WEIGHT)
        last = [*last, w][-n_last:]
    return np.mean(last, axis=0), np.array(trace)


@lru_cache
def noise_slopes(
    n_features: int,
    noise_deviations: tuple[float, ...],
    n_hidden: int = 20,
    optimizer: Optimizer = "adam",
    learning_rate: float | None = None,
    clip: float = 0.3,
    *,
    first_weights: float = 1.0,
    seed: int = 0,
    n_draws: int = 100,
) -> np.ndarray:
    """Slopes of networks trained on features independent of groups; post-processing.

    Each is trained as the study's was, with noise as loud, on :data:`PEOPLE` rows that
    are normal with norms about the norm bound, as :meth:`Network.slopes` takes them to
    be, and groups drawn at random. Of more people sampling is quieter than here.

    Parameters
    ----------
    n_features
        Number D of features.
    noise_deviations
        Of the noise in one coordinate of each released gradient.
    n_hidden, optimizer, learning_rate, clip, first_weights, seed
        As in :func:`network`.
    n_draws
        Networks; the generator is fixed.

    Returns
    -------
    numpy.ndarray
        Shape (n_draws, D), for features divided by the norm bound.
    """
    rng = np.random.default_rng(0)
    start = first_weights * weights_at_first(n_features, n_hidden, seed)
    rounds, slopes = range(len(noise_deviations)), []
    apart = np.arange(PEOPLE)  # each is a unit
    for _ in range(n_draws):
        x = rng.standard_normal((n_features, PEOPLE)) / np.sqrt(n_features)
        X = np.concatenate([x, rng.integers(0, 2, (1, PEOPLE))])

        def gradient(w: np.ndarray, t: int, X: np.ndarray = X) -> np.ndarray:
            parameters = {"weights": w, "norm_bound": 1.0, "clip": clip}
            mean = network_gradient(Block(X, apart, "sample"), **parameters) / PEOPLE
            return mean + noise_deviations[t] * rng.standard_normal(w.size)

        w, _ = _descend(gradient, start, rounds, optimizer, learning_rate)
        W, v = layers(w, n_features + 1)
        slopes.append(Network(W, v, 1.0, np.zeros(0), 0).slopes())
    return np.array(slopes)


def weights_at_first(n_features: int, n_hidden: int, seed: int = 0) -> np.ndarray:
    """Packed weights that rounds start from: public, whatever the data are.

    He's deviations [He 2015] for inputs of norm 1, where a feature has a mean square of
    1 / D: sqrt(2) in the hidden layer, ``sqrt(2 / n_hidden)`` in the output; biases 0.
    """
    rng = np.random.default_rng(seed)
    W = np.zeros((n_hidden, n_features + 1))
    W[:, :-1] = np.sqrt(2) * rng.standard_normal((n_hidden, n_features))
    v = np.sqrt(2 / n_hidden) * rng.standard_normal(n_hidden)
    return np.concatenate([W.ravel(), v, [0.0]])
