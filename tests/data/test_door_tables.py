"""Tables as programs and people write them: read right, or refused in one line."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from capeneuro.config.errors import ConfigError
from capeneuro.data.people import match, read_rows
from capeneuro.data.tables import open_texts

ROWS = [["sub-01", "31", "0.5"], ["sub-02", "40", "0.25"]]
VALUES = {"sub-01": [31, 0.5], "sub-02": [40, 0.25]}
HEADER = ["participant_id", "age", "score"]
COLUMNS = ["age", "score"]


def text(*rows, header=HEADER, by="\t", end="\n") -> str:
    return end.join(by.join(row) for row in (header, *rows)) + end


def write(folder: Path, content: str | bytes, name: str = "a.tsv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refused(call, *arguments, **options) -> str:
    with pytest.raises(ConfigError) as error:
        call(*arguments, **options)
    line = str(error.value)
    assert "\n" not in line
    return line


def same(found: dict[str, np.ndarray], expected: dict[str, list[float]]) -> None:
    assert list(found) == list(expected)
    for person, values in expected.items():
        np.testing.assert_array_equal(found[person], np.float32(values))


NOTED = [*HEADER, "note"]
WRITTEN = {
    "C06 quotes of tabs": (
        text([*ROWS[0], '"tall'], [*ROWS[1], 'a "y'], header=NOTED),
        "a.tsv",
    ),
    "C06 quotes within commas": (
        text([*ROWS[0], '5" tall'], [*ROWS[1], '"a, b"'], header=NOTED, by=","),
        "a.csv",
    ),
    "quoted tabs of R": (
        text(*[[f'"{r[0]}"', *r[1:]] for r in ROWS], header=[f'"{h}"' for h in HEADER]),
        "a.tsv",
    ),
    "mark of UTF-8": (b"\xef\xbb\xbf" + text(*ROWS).encode(), "a.tsv"),
    "UTF-16": (text(*ROWS).encode("utf-16"), "a.tsv"),
    "Windows' letters": (
        text([*ROWS[0], "gr\xf6\xdfer"], [*ROWS[1], ""], header=NOTED).encode("cp1252"),
        "a.tsv",
    ),
    "gzip": (gzip.compress(text(*ROWS, by=",").encode()), "a.csv.gz"),
    "semicolons": (text(*ROWS, by=";"), "a.csv"),
    "tabs in .csv": (text(*ROWS), "a.csv"),
    "commas in .tsv": (text(*ROWS, by=","), "a.tsv"),
    "a comma in a name": (
        text([*ROWS[0], "1"], [*ROWS[1], "2"], header=[*HEADER, "x, mm"]),
        "a.csv",
    ),
    "Excel's first line": ("sep=;\n" + text(*ROWS, by=";"), "a.csv"),
    "Excel's empty ends": (
        text(*[[*r, "", ""] for r in ROWS], [""] * 5, header=[*HEADER, "", ""], by=";"),
        "a.csv",
    ),
    "empty cells beyond the header": (text(*[[*r, "", ""] for r in ROWS]), "a.tsv"),
    "lines of Windows": (text(*ROWS, end="\r\n"), "a.tsv"),
    "lines of old Macs": (text(*ROWS, end="\r"), "a.tsv"),
    "blanks around": (
        text(
            *[[f" {r[0]} ", *r[1:]] for r in ROWS], header=[" participant_id", *COLUMNS]
        ),
        "a.tsv",
    ),
    "a column without a name": (
        text(*[["1", *r] for r in ROWS], header=["", *HEADER], by=","),
        "a.csv",
    ),
    "another column twice": (
        text(*[[*r, "1", "2"] for r in ROWS], header=[*HEADER, "x", "x"]),
        "a.tsv",
    ),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_a_table_is_read_whoever_wrote_it(tmp_path, case):
    same(read_rows(write(tmp_path, *WRITTEN[case]), COLUMNS), VALUES)


def of(cell: str, by: str = "\t") -> str:
    return text(ROWS[0], ["sub-02", "40", cell], by=by)


REFUSED = {
    "C06 quote that opens": (
        text([*ROWS[0], '"tall'], [*ROWS[1], '"y'], header=NOTED, by=","),
        "a.csv",
        ", line 2: a quote opens a cell",
    ),
    "C06 line break in a cell": (
        text([*ROWS[0], '"a\nb"'], header=NOTED, by=","),
        "a.csv",
        ", line 2: a quote opens a cell",
    ),
    "a row too long": (
        text([*ROWS[0], "7"], ROWS[1]),
        "a.tsv",
        ", line 2: has 4 cells, the header 3; give each column a name",
    ),
    "two separators": (
        "participant_id,x;age,score\nsub-01,1;2,3\n",
        "a.csv",
        "may be by commas or semicolons",
    ),
    "blanks": ("participant_id   age  score\n", "a.tsv", "divide columns by tabs"),
    "UTF-16 without its mark": (
        text(*ROWS).encode("utf-16-le"),
        "a.tsv",
        "not a table in UTF-8; save it",
    ),
    "Excel": (b"PK\x03\x04" + b"\0" * 99, "a.csv", "is a spreadsheet"),
    "cut gzip": (gzip.compress(text(*ROWS).encode())[:20], "a.tsv.gz", "damaged"),
    "nothing but ends": ("\n;;\n", "a.csv", "has no header"),
    "a column twice": (
        text(*[[*r, "1"] for r in ROWS], header=[*HEADER, "age"]),
        "a.tsv",
        "must have each column once, has age again",
    ),
    "another case": (
        text(*ROWS, header=["Participant_ID", *COLUMNS]),
        "a.tsv",
        "lacks the columns participant_id; it has Participant_ID, age, score; did you",
    ),
    "decimal comma": (of("1,5", ";"), "a.csv", "'1,5' of sub-02 in score; write a poi"),
    "thousands": (of("1,234.5"), "a.tsv", "'1,234.5' of sub-02 in score; write it w"),
    "thousands of blanks": (of("1 234"), "a.tsv", "no sign for thousands"),
    "underscore": (of("1_000"), "a.tsv", "text stands in score: '1_000'"),
    "boolean": (of("True"), "a.tsv", "'True' of sub-02 in score; name both as groups"),
    "booleans": (
        text(["sub-01", "31", "True"], ["sub-02", "40", "False"]),
        "a.tsv",
        "'True' of sub-01 in score; name both as groups in the study file",
    ),
    "boolean beside nothing": (
        text(["sub-01", "31", "True"], ["sub-02", "40", ""]),
        "a.tsv",
        "'True' of sub-01 in score",
    ),
    **{
        f"C41 {cell or 'empty'}": (
            of(cell),
            "a.tsv",
            "score of sub-02 is missing; fill in by a public rule, or remove the row",
        )
        for cell in ("n/a", "NA", "NaN", "", "null")
    },
    "infinite": (of("inf"), "a.tsv", "score of sub-02 is missing or not finite"),
    "too large": (of("1e39"), "a.tsv", "score of sub-02 is missing or not finite"),
    "a short row": ("\t".join(HEADER) + "\nsub-01\t3\n", "a.tsv", "score of sub-01 is"),
    "twice": (text(ROWS[0], ROWS[0]), "a.tsv", "twice: sub-01"),
    "twice without sub-": (
        text(ROWS[0], ["01", "31", "0.5"]),
        "a.tsv",
        "twice: 01, sub-01",
    ),
    "nobody": (text(ROWS[0], ["", "1", "2"]), "a.tsv", "row 3 has ''"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_table_that_may_mean_two_things_is_refused(tmp_path, case):
    content, name, words = REFUSED[case]
    assert words in refused(read_rows, write(tmp_path, content, name), COLUMNS)


IDS = {
    "C39 without sub-": ["01", "02"],
    "C39 as numbers": ["1", "2"],
    "C39 after Excel": ["1.0", "2.0"],
    "C39 more zeros": ["001", "002"],
    "C39 others beside": ["2", "1", "sub-7", "Anna"],
}


@pytest.mark.parametrize("case", IDS)
def test_people_are_matched_with_their_rows(tmp_path, case):
    rows = [[own, str(10 * i), "0"] for i, own in enumerate(IDS[case])]
    path = write(tmp_path, text(*rows))
    found = read_rows(path, COLUMNS, people=["sub-01", "sub-02"])
    numbers = [own.removeprefix("sub-").lstrip("0") for own in IDS[case]]
    places = [
        next(i for i, own in enumerate(numbers) if own in (one, f"{one}.0"))
        for one in "12"
    ]
    same(found, {f"sub-0{k + 1}": [10 * i, 0] for k, i in enumerate(places)})


@pytest.mark.parametrize(
    ("people", "ids", "words"),
    [
        (["sub-01"], ["1", "001"], "1, 001 may be of sub-01; write names as in the"),
        (["sub-1", "sub-01"], ["1"], "1 may be of sub-1, sub-01"),
        (["sub-01", "sub-001"], ["1", "2"], "1 may be of sub-01, sub-001"),
        (["sub-01"], ["sub-7"], "lacks sub-01 (has sub-7, who have no files); add"),
        (["sub-01"], [], "lacks sub-01; add them, or leave sub-01 out"),
        (["sub-1-2"], ["2-Jan"], "2-Jan, which a spreadsheet made of labels"),
        (["sub-12E5"], ["1.20E+06"], "1.20E+06, which a spreadsheet made of labels"),
        (["sub-A"], ["a"], "lacks sub-A (has a, who have no files)"),
    ],
)
def test_who_cannot_be_matched_surely_is_refused(people, ids, words):
    about = Path("a.tsv"), people, ids, "leave {} out".format
    assert words in refused(match, *about)


def test_rows_of_others_may_be_missing(tmp_path):
    path = write(tmp_path, of("n/a"))
    same(read_rows(path, COLUMNS, people=["sub-01"]), {"sub-01": [31, 0.5]})


WORDS = {"group": ("control", "patient", "relative"), "is_control": ("false", "true")}


@pytest.mark.parametrize(
    ("cells", "places"),
    [
        (["control", "True"], [0, 1]),
        (["relative ", "FALSE"], [2, 0]),
        (["patient", "true"], [1, 1]),
    ],
)
def test_words_of_groups_are_places_in_the_study_file(tmp_path, cells, places):
    path = write(tmp_path, text(["sub-01", *cells], header=["participant_id", *WORDS]))
    same(read_rows(path, [*WORDS], WORDS), {"sub-01": places})


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("Control", "must be one of control, patient, relative, the words of the stud"),
        ("0", "is '0' for sub-01; mend it"),
        ("n/a", "group of sub-01 is missing"),
        ("", "group of sub-01 is missing"),
    ],
)
def test_other_words_are_refused(tmp_path, cell, words):
    path = write(tmp_path, text(["sub-01", cell], header=["participant_id", "group"]))
    assert words in refused(read_rows, path, ["group"], WORDS)


def test_a_large_table_stays_fast(tmp_path):
    names = [f"x{i}" for i in range(30)]
    rows = [[f"sub-{i}", *map(str, range(i, i + 30))] for i in range(10_000)]
    path = write(
        tmp_path, text(*rows, header=["participant_id", *names], by=","), "a.csv"
    )
    found = read_rows(path, names, people=[row[0] for row in rows])
    assert len(found) == 10_000
    np.testing.assert_array_equal(found["sub-9999"], np.arange(9999, 10_029))


def test_texts_are_as_they_are_written(tmp_path):
    path = write(tmp_path, "index\tname\n01\tNA \n2\n")
    table = open_texts(path)
    assert table.to_numpy().tolist() == [["01", "NA"], ["2", ""]]
