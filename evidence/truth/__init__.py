"""How often what a study says is true: accuracy, coverage, false alarms, power.

Each file is a command, ``python -m evidence.truth.<file>``; most make the rows of one
section of docs/statements.md again.
"""
