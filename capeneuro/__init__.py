"""Differentially private, decentralised analysis of brain imaging."""

__version__ = "0.1.0"
