"""Fenced blocks of pages, run as a reader would run them.

    python tests/tools/pages.py [PAGE...]     # all pages, and a table of what ran

`bash` and `python` blocks run, `yaml` blocks are read as a study or a site file, `text`
is what a program says. A comment just above a block says what the page does not:

    <!-- first: CODE -->       runs before the block: what its reader has already
    <!-- of: FILE -->          the study or site file that these keys are put into
    <!-- not run: REASON -->   then its commands are only parsed
"""

import contextlib
import importlib.util
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import yaml
from workflows import BIN, ROOT

from capeneuro import cli
from capeneuro.config import load

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
BLOCK = re.compile(
    r"^(?:<!-- (first|of|not run):\s+(.*?)\s*-->\n)?```(\w+)\n(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
# What a page's folder has of the checkout, to be read and not written.
LINKED = ("workflow", "sim", "benchmarks", "evidence", "papers", "docs", "capeneuro")
LINKED += ("packaging",)
ELLIPSIS = "..."
PARSER = cli.parser()


class Block(NamedTuple):
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    text: str
    mark: str
    """`first`, `of` or `not run`; empty: no comment stands above it."""
    note: str

    @property
    def where(self) -> str:
        """Page and line."""
        return f"{self.page}:{self.line}"

    @property
    def runs(self) -> bool:
        """Whether it is executed with its page."""
        return self.language in ("bash", "python") and self.mark != "not run"


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, without Sphinx' own directives."""
    text = page.read_text()
    name = page.relative_to(ROOT).as_posix()
    found = []
    for match in BLOCK.finditer(text):
        mark, note, language, body = match.groups()
        line = text.count("\n", 0, match.start(3)) + 1
        found.append(Block(name, line, language, body, mark or "", note or ""))
    return found


def filled(shown: Any, whole: Any) -> Any:
    """What a page shows of a file, with the file's own values where it has `...`."""
    if shown == ELLIPSIS or (isinstance(shown, list) and ELLIPSIS in shown):
        return whole
    if not isinstance(shown, dict):
        return shown
    whole = whole if isinstance(whole, dict) else {}
    rest = whole if ELLIPSIS in shown else {}
    own = {k: filled(v, whole.get(k)) for k, v in shown.items() if k != ELLIPSIS}
    return {**rest, **own}


def read_yaml(block: Block, folder: Path) -> None:
    """Read the keys of a block as the product reads them, in the file they are of."""
    file = ROOT / block.note
    whole = yaml.safe_load(file.read_text())
    content = filled({**yaml.safe_load(block.text), ELLIPSIS: None}, whole)
    path = folder / "shown.yaml"
    path.write_text(yaml.safe_dump(content))
    if file.parent.name != "sites":
        load.load_study(path)
        return
    if (common := file.with_name(load.COMMON)).exists():
        shutil.copy(common, folder)
    load.load_site(path)


def parse(block: Block) -> None:
    """Parse commands: options of `capeneuro`, modules of `python -m`."""
    if block.language == "python":
        compile(block.text, block.where, "exec")
        return
    for line in block.text.replace("\\\n", " ").splitlines():
        every = shlex.split(line, comments=True)
        words = list(takewhile(lambda word: word not in (">", "|", "&&"), every))
        if words[:1] == ["capeneuro"]:
            PARSER.parse_args(words[1:])
        if "-m" in words and words[words.index("-m") + 1] != "pip":
            module = words[words.index("-m") + 1]
            if importlib.util.find_spec(module) is None:
                raise ModuleNotFoundError(f"{block.where}: {module}")


def lay_out(folder: Path) -> None:
    """Make a folder that is like a checkout, whose environment is this one."""
    for name in ("config", "examples"):
        away = shutil.ignore_patterns("work", "__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=away)
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(BIN.parent)


def run_block(block: Block, names: dict[str, object]) -> None:
    """Run one block in the working directory; ``names`` are those of the session."""
    before = block.note + "\n" if block.mark == "first" else ""
    if block.language == "python":
        exec(compile(before + block.text, block.where, "exec"), names)
        return
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-ec", before + block.text],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if done.returncode:
        raise RuntimeError(f"{block.where}: {block.text}{done.stdout}{done.stderr}")
    print(done.stdout)


def run_page(page: str) -> list[tuple[Block, float]]:
    """Run a page's blocks in order, in the working directory; return their seconds.

    All Python of a page is one session, as in a notebook; every shell block begins
    where the page does.
    """
    lay_out(Path())
    names: dict[str, object] = {}
    took = []
    for block in blocks(ROOT / page):
        if block.runs:
            start = time.monotonic()
            run_block(block, names)
            took.append((block, time.monotonic() - start))
    return took


def main(pages: list[Path]) -> int:
    """Run pages, each in a folder of its own, and print what ran and what did not."""
    matplotlib.use("agg")
    begun, status, count = time.monotonic(), 0, {"run": 0, "read": 0, "not run": 0}
    for page in pages:
        every = [b for b in blocks(page) if b.language != "text"]
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            for kind in ("DATA", "STATE"):  # ledgers of private data
                os.environ[f"XDG_{kind}_HOME"] = str(Path(folder, "home", kind))
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    took = dict(run_page(str(page.relative_to(ROOT))))
                    for block in every:
                        if block.language == "yaml" and block.mark == "of":
                            read_yaml(block, Path())
            except (Exception, SystemExit) as error:
                print(f"{page.relative_to(ROOT)}: FAILED: {error}", flush=True)
                status = 1
                continue
        for block in every:
            fate = "read" if block.language == "yaml" else "run"
            fate = "not run" if block.mark == "not run" else fate
            count[fate] += 1
            about = f"{took[block]:.1f} s" if block in took else ""
            reason = f": {block.note}" if fate == "not run" else ""
            print(f"{block.where:30} {block.language:7} {fate}{reason} {about}")
        sys.stdout.flush()
    said = ", ".join(f"{n} {fate}" for fate, n in count.items())
    print(f"{sum(count.values())} blocks: {said}; {time.monotonic() - begun:.0f} s")
    return status


if __name__ == "__main__":
    given = [Path(name).resolve() for name in sys.argv[1:]]
    sys.exit(main(given or PAGES))
