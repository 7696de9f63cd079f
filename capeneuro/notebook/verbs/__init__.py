"""One verb an algorithm, on arrays: what `import capeneuro` offers.

Each verb takes sites (:func:`.federate`) first and the share of their budget that it
may spend; it plans its releases with it, refuses those that the budget does not pay
for, and returns the result of its algorithm. The same call runs in every arm. A release
whose noise is predicted to exceed the signal is refused before it is charged.

The examples of the verbs are run by a test; they begin with

    >>> import numpy as np
    >>> import capeneuro as cn
    >>> promise = cn.Budget(2, 1e-5, unit="subject")
    >>> rng = np.random.default_rng(0)

components
    Directions and components: PCA, ICA, CCA, patterns.
groups
    Groups of people, topics of documents.
models
    Linear and logistic regression, cross-validation, a network.
contrasts
    Effects of covariates on many outcomes.
distributions
    Quantiles of numbers.
planning
    What a verb plans before it spends.
"""
