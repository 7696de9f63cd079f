"""How far one person can move a number, the noise that hides it, and what that costs.

accounting
    From noise to (epsilon, delta) and back; the budget that a study promises.
accountants
    The same in other words, for plans and reports: other accountants, a person.
cape
    Correlated noise that cancels: what the worst coalition learns, in every arm.
parties
    What each class of parties learns, for plans and records.
calibration
    Least noise that keeps every site's promise; planned, never relied on.
queries
    Every statistic that may leave a site, with its sensitivity.
blocks
    Samples of some people, and whose contribution is clipped.
clipping
    How far one unit's data reach.
moments
    Second and third moments, and moments of words, as clipped sums.
contrasts
    A linear model of many outcomes on few covariates, as one clipped sum.
deviations
    How people differ from public ones, as clipped sums.
gradients
    Gradients of infomax and of a network, as clipped sums.
noise
    Normal noise from a cryptographic generator.
rounding
    Cost of drawing normal noise as doubles.
ring
    Real numbers as integers modulo 2^64, so that sums are exact.
"""
