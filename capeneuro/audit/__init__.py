"""Attacks that an installation must withstand, and the bounds they give.

canaries
    An attack on the real code that could prove the promise wrong.
one_run
    An attack on a whole study in a single run.
one_run_bounds
    What right guesses of many coins prove about epsilon.
two_stages
    A row of the audit that goes through two stages.
"""
