"""Secure sums [Bonawitz et al. 2017]: the aggregator learns a sum and nothing else.

one_exchange
    A sum in which every site must answer: one message to a site, one back.
protocol
    A sum that does without lost sites: four exchanges, and what a site does in them.
unmasking
    What the aggregator does in them: it takes the masks off.
masking
    Masks that cancel in the sum.
shamir
    Shares of a secret, of which a threshold gives it back.
signing
    What sites sign with their long-term keys.
"""
