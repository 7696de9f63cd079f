"""How often what a study says is true: accuracy, coverage, false alarms, power.

Each file is a command, ``python -m evidence.truth.FILE``. ``python -m evidence truth``
[:mod:`.bench`] runs those that measure a row of docs/statements.md.
"""
