"""Fenced blocks of a page, run as a reader would run them."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from workflows import BIN, ROOT

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# `console` is for what a reader types once, such as the installation.
READ = ("console", "yaml", "text")


def run_page(page: str) -> None:
    """Run a page's `bash` and `python` blocks in order, in the working directory.

    All Python of a page is one session, as in a notebook.
    """
    shutil.copytree(ROOT / "config", "config")
    for name in ("workflow", "sim"):
        Path(name).symlink_to(ROOT / name)
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    names: dict[str, object] = {}
    for language, text in BLOCK.findall((ROOT / page).read_text()):
        if language == "bash":
            about = {"capture_output": True, "text": True, "check": False}
            about["env"] = {**os.environ, "PATH": path}
            done = subprocess.run(["sh", "-ec", text], **about)
            assert done.returncode == 0, f"{page}:\n{text}{done.stdout}{done.stderr}"
            print(done.stdout)
        elif language == "python":
            exec(compile(text, page, "exec"), names)
        else:
            assert language in READ, f"{page}: {language!r}:\n{text}"
