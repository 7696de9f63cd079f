"""Cells of tables: numbers stay, and no spreadsheet runs what is text."""

import numpy as np
import pytest

from capeneuro.config.errors import ConfigError
from capeneuro.data.files import (
    Features,
    cell,
    read_table,
    write_features,
    write_table,
)

NUMBERS = [0, -1, 1.5, True, np.float32(-0.25), "-1", "+2.5e-3", "-inf", "nan", "-0.0"]
TEXTS = [
    "",
    "x",
    "a=b",
    "1-2",
    "sub-01",
    "it's",
    "'=x",
    "above noise",
    "|r| of -1",
    "ü",
]
FORMULAS = ["=1+1", "+x", "-x", "@SUM(A1)", "-1+1", "=cmd|'/c calc'!A0", "-", " =x"]
FORMULAS += ['"=1+1"', '" =1"', "\u00a0=x", "\n=x", "\tx", "\rx", "\t-1x", "-1 2"]


@pytest.mark.parametrize("value", [*NUMBERS, *TEXTS], ids=repr)
def test_numbers_and_plain_text_stay(value):
    assert cell(value) == str(value)


@pytest.mark.parametrize("text", FORMULAS, ids=repr)
def test_what_a_spreadsheet_would_run_is_text(text):
    written = cell(text)
    assert written.startswith("'") and written[1:].split() == text.split()
    assert cell(written) == written


BLANKS = "\t\n\r\v\f\x1c\x1e\x85\u2028"


def test_no_text_leaves_its_cell(tmp_path):
    rows = [[f"a{blank}b", f"{blank}=1", 1] for blank in BLANKS]
    write_table(tmp_path / "t.tsv", ["name", f"x{BLANKS}", "n"], rows)
    read = read_table(tmp_path / "t.tsv")
    assert read == [["a b", "' =1", "1"]] * len(BLANKS)
    assert (tmp_path / "t.tsv").read_bytes().count(b"\n") == 1 + len(BLANKS)


def test_any_number_of_people_are_read_from_one_open_file(tmp_path, few_open_files):
    people = {f"sub-{i}": np.full((3, i % 5 + 1), i, "f4") for i in range(200)}
    people["sub-0"] = np.asfortranarray(np.arange(6.0).reshape(3, 2))
    write_features(tmp_path / "x.npz", people.items())
    found = dict(Features(tmp_path / "x.npz").items())
    for who, X in people.items():
        np.testing.assert_array_equal(found[who], X)
        assert found[who].dtype == X.dtype
    assert not found["sub-0"].flags.writeable


def test_a_file_that_was_cut_is_damaged(tmp_path):
    path = tmp_path / "x.npz"
    write_features(path, {"sub-0": np.ones((300, 200), np.float32)}.items())
    people = Features(path)
    with path.open("r+b") as file:
        file.truncate(10_000)
    with pytest.raises(ConfigError, match="not readable; run `prepare` again"):
        people["sub-0"]
