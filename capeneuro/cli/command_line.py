"""The command line: one subcommand per step of a study.

Exit status: 0 done, 2 bad input (one clear line), 3 budget refused, 1 failure, and
4 while `aggregate --folder` waits for answers.
"""

import argparse
import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from capeneuro import __version__, machine
from capeneuro.cli import audits, parties, questions, records, runs, study_files
from capeneuro.cli.command import Command
from capeneuro.config.sections import BESIDE
from capeneuro.studies.steps import steps
from capeneuro.studies.usage import Usage


class _Parser(argparse.ArgumentParser):
    """A parser that refuses wrong arguments in one line, as all other mistakes."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}; see {self.prog} --help\n")


def commands() -> Iterator[Command]:
    """All subcommands in the order of the help."""
    for file in (study_files, runs, records, audits, parties, questions):
        yield from file.commands()


def parser() -> argparse.ArgumentParser:
    """Build the command line's parser."""
    top = _Parser(prog="capeneuro", description=__doc__)
    top.add_argument("--version", action="version", version=__version__)
    subparsers = top.add_subparsers(required=True, metavar="COMMAND")
    for command in commands():
        name = command.name or command.run.__name__
        text = command.text or command.run.__doc__ or ""
        subparser = subparsers.add_parser(
            name,
            help=text.splitlines()[0],
            description=text,
            epilog=f"example: capeneuro {name} {command.example}",
        )
        subparser.set_defaults(run=command.run, step=name)
        subparser.add_argument("--log", type=Path, help="also write messages here")
        subparser.add_argument("--version", action="version", version=__version__)
        loudness = subparser.add_mutually_exclusive_group()
        loudness.add_argument("-v", "--verbose", action="store_true", help="say more")
        loudness.add_argument("-q", "--quiet", action="store_true", help="only errors")
        command.add_arguments(subparser)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    top = parser()
    if "_ARGCOMPLETE" in os.environ:  # the shell asks what may come next
        import argcomplete

        argcomplete.autocomplete(top)
    words = sys.argv[1:] if argv is None else argv
    # Where options stand before `--`, argparse refuses words after it.
    cut = words.index("--") if words[:1] == ["run"] and "--" in words else len(words)
    options = top.parse_args(words[:cut])
    if cut < len(words):
        options.snakemake = words[cut + 1 :]
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    logging.raiseExceptions = False  # report a full disk once, not for each message
    handlers[0].setLevel(logging.INFO if options.verbose else logging.WARNING)
    try:
        if options.log is not None:
            options.log.parent.mkdir(parents=True, exist_ok=True)
            handlers.append(logging.FileHandler(options.log, mode="w"))
    except OSError as error:
        print(f"error: --log: {options.log}: {error.strerror}", file=sys.stderr)
        return 2
    logging.basicConfig(
        format="%(message)s", handlers=handlers, force=True, level=logging.INFO
    )
    usage = Usage()
    if options.step in steps() and "CAPENEURO_RUN" in os.environ and options.log:
        handlers[0].setLevel(logging.CRITICAL)  # `run` prints errors, last of all
        beside = BESIDE if getattr(options, "reference", False) else ""
        names = (options.step, options.stage, getattr(options, "site", ""), beside)
        # In one piece: steps of two sites write at the same time.
        sys.stdout.write(f"{' '.join(filter(None, names))}\n")
        sys.stdout.flush()
    try:
        with contextlib.ExitStack() as stack:
            if options.quiet:
                nowhere = stack.enter_context(open(os.devnull, "w"))
                stack.enter_context(contextlib.redirect_stdout(nowhere))
            status = options.run(options) or 0
            sys.stdout.flush()
        logging.info(usage.in_words())
        return status
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        logging.error(machine.INTERRUPTED)
        return 130
    except Exception as error:
        from capeneuro.studies.flow import outcome

        status, lines = outcome(error)
        for line in lines:
            logging.error("error: %s", line)
        logging.info("ended with status %d", status)
        if status == 1:  # the traceback goes to --log alone
            logging.info("", exc_info=True)
        return status
