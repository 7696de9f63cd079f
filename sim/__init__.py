"""Makers of simulated studies with known truth: nothing here holds private data."""
