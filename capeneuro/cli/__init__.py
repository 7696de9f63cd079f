"""The command line: one subcommand per step of a study, by what they are about.

A command imports what it needs when it runs: a study is many short processes.

command_line
    The parser of all commands, and the door `main`.
command
    What a subcommand is made of.
study_files
    Before a study runs: init, explain, doctor, site-means, check.
runs
    Each step, run, bids; prior and predict.
records
    What was spent: ledger, privacy.
audits
    Attacks on this installation: audit.
parties
    Each party on its own host: federation, join, site, aggregate, answer.
questions
    Questions to what was released: ask.
__main__
    `python -m capeneuro.cli`.
"""

from capeneuro.cli.command_line import commands, main, parser

__all__ = ["commands", "main", "parser"]
