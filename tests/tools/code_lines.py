"""Lines of code of a file: neither blank, comment, docstring nor import.

    python tests/tools/code_lines.py FILES

Each file's lines of code, of imports and in all, and their sums.
"""

import ast
import io
import sys
import tokenize
from pathlib import Path
from typing import NamedTuple

NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


class Lines(NamedTuple):
    """Numbers of lines of a file."""

    code: int
    imports: int
    total: int


def count(text: str) -> Lines:
    """Count the lines of a Python file's text."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    written, imports, strings = set(), set(), set()
    for token in tokens:
        if token.type not in NO_CODE:
            written |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        lines = set(
            range(getattr(node, "lineno", 1), getattr(node, "end_lineno", 0) + 1)
        )
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports |= lines
        # A string that nothing is made of: the docstring of a file, function or field.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            strings |= lines if isinstance(node.value.value, str) else set()
    code = written - strings - imports
    return Lines(len(code), len(imports), text.count("\n"))


if __name__ == "__main__":
    counts = {path: count(Path(path).read_text()) for path in sys.argv[1:]}
    counts["together"] = Lines(*map(sum, zip(*counts.values(), strict=True)))
    print("  code imports   total")
    for path, lines in counts.items():
        print(f"{lines.code:6} {lines.imports:7} {lines.total:7}  {path}")
