"""Samples of the two models with known components: mixtures and topics.

The papers' sizes are D = 10, K = 5 and D = 50, K = 10, with sigma^2 = 0.05
[Imtiaz 2018, 5.2]; they do not give weights or components.
"""

from typing import NamedTuple

import numpy as np


class Mixture(NamedTuple):
    """Weights and components of a model."""

    weights: np.ndarray
    """Shape (K,), of sum 1."""
    components: np.ndarray
    """Centers, or topics as shares of words; shape (D, K)."""


def draw_mixture(
    n_features: int, n_components: int, rng: np.random.Generator
) -> Mixture:
    """Draw K centers of norm 1 in directions uniform over the sphere.

    Parameters
    ----------
    n_features, n_components
        D and K <= D.
    rng
        Fixes the draw.

    Returns
    -------
    Mixture
        Weights in proportion to 1 + a uniform number: the largest is at most twice the
        smallest.
    """
    A = rng.standard_normal((n_features, n_components))
    w = 1 + rng.random(n_components)
    return Mixture(w / w.sum(), A / np.linalg.norm(A, axis=0))


def gaussian_samples(
    mixture: Mixture, variance: float, n_samples: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw ``x = a_h + z`` with h from the weights and z ~ N(0, variance I).

    Returns
    -------
    numpy.ndarray
        Shape (D, N), float32. ``|x|^2`` is ``|a_h|^2 + D variance`` on average, so a
        public norm bound has to be larger than 1: 2 at D = 50, variance 0.05.
    """
    D, K = mixture.components.shape
    h = rng.choice(K, n_samples, p=mixture.weights)
    z = rng.standard_normal((D, n_samples), dtype=np.float32)
    return mixture.components.astype("f4")[:, h] + np.float32(np.sqrt(variance)) * z


def draw_topics(
    n_words: int, n_topics: int, rng: np.random.Generator, concentration: float = 0.2
) -> Mixture:
    """Draw K topics: shares of D words from a symmetric Dirichlet distribution.

    Parameters
    ----------
    n_words, n_topics
        D and K <= D.
    rng
        Fixes the draw.
    concentration
        Of the Dirichlet: below 1, each topic has few frequent words.

    Returns
    -------
    Mixture
        Weights as in :func:`draw_mixture`.
    """
    A = rng.dirichlet(np.full(n_words, concentration), n_topics).T
    w = 1 + rng.random(n_topics)
    return Mixture(w / w.sum(), A)


def topic_counts(
    topics: Mixture, n_documents: int, n_words: int, rng: np.random.Generator
) -> np.ndarray:
    """Count the words of documents that have one topic each.

    Parameters
    ----------
    topics
        See :func:`draw_topics`.
    n_documents
        N.
    n_words
        Words of a document, at least 3. The papers use 3; more of them give the same
        sensitivity and less chance.
    rng
        Fixes the draw.

    Returns
    -------
    numpy.ndarray
        Shape (D, N), float32, columns of sum ``n_words``.
    """
    h = rng.choice(len(topics.weights), n_documents, p=topics.weights)
    return rng.multinomial(n_words, topics.components.T[h]).T.astype("f4")
