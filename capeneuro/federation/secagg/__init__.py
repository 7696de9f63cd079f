"""Secure sums [Bonawitz et al. 2017]: the aggregator learns a sum and nothing else.

protocol
    The four exchanges, and what each party does in them.
masking
    Masks that cancel in the sum.
shamir
    Shares of a secret, of which a threshold gives it back.
signing
    What sites sign with their long-term keys.
"""
