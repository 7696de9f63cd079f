"""Tables as programs and people write them: read right, or refused in one line."""

import gzip
import json
import re
import shutil
import unicodedata
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import sites
import yaml

from capeneuro import cli
from capeneuro.config.errors import ConfigError
from capeneuro.config.load import load_study
from capeneuro.config.site import SiteConfig
from capeneuro.data import inventory
from capeneuro.data.people_tables import inventory_of_maps, leave_out, read_rows
from capeneuro.data.tables import check_columns, open_texts
from capeneuro.studies.contrast import ContrastKind

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
    "signs that nobody sees": (
        text(
            [f"\u200b{ROWS[0][0]}", "31\u00a0", "\u200b0.5"],
            ["SUB\u201102\u2060", *ROWS[1][1:]],
            header=["participant_id\u200b", "age\u00a0", "score"],
        ),
        "a.tsv",
    ),
    "blank rows between": (text(ROWS[0], ["", "", ""], ROWS[1]), "a.tsv"),
    "blank rows of commas": (text(ROWS[0], [""] * 3, ROWS[1], by=","), "a.csv"),
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
    "ABIDE": (
        text(*ROWS, header=["FILE_ID", *COLUMNS]),
        "a.tsv",
        "call the column with the names of people, as files have them, participant_id",
    ),
    "decimal comma": (of("1,5", ";"), "a.csv", "'1,5' of sub-02 in score; write a poi"),
    "thousands": (of("1,234.5"), "a.tsv", "'1,234.5' of sub-02 in score; write it w"),
    "thousands or a decimal": (of("1,234"), "a.tsv", "write 1.234 or 1234, whichever"),
    "a date": (of("2020-01-31"), "a.tsv", "dates are no numbers: give years, or days"),
    "a date of Excel": (of("31/01/2020"), "a.tsv", "dates are no numbers"),
    "a formula": (of("#DIV/0!"), "a.tsv", "a formula failed there: mend it, and save"),
    "a title above": (
        "Export of May\n" + text(*ROWS),
        "a.tsv",
        "line 2: has 3 cells, the header 1; take out what stands above the header: 'Ex",
    ),
    "no column of people": (
        text(*ROWS, header=["record_id", *COLUMNS]),
        "a.tsv",
        "lacks the columns participant_id; it has record_id, age, score; call the col",
    ),
    "a row of means": (
        text(*ROWS, ["Mean", "35", "0.4"]),
        "a.tsv",
        "must name people, Mean sums up others; take that row out",
    ),
    "a label of nothing": (
        text(ROWS[0], ["sub-", "1", "2"]),
        "a.tsv",
        "row 3 has 'sub-",
    ),
    "twice by case": (text(ROWS[0], ["SUB-01", "1", "2"]), "a.tsv", "twice: sub-01"),
    "twice by accents": (
        text(["Jos\u00e9", "1", "2"], ["Jose\u0301", "1", "2"]),
        "a.tsv",
        "twice: Jos\u00e9; keep one",
    ),
    "a percentage": (of("3%"), "a.tsv", "'3%' of sub-02 in score; write it with a poi"),
    "a mark for nothing": (of("-"), "a.tsv", "fill in what is missing"),
    "quotes": (of('"3"'), "a.tsv", "take quotes out, which files of tabs do not have"),
    "thousands of blanks": (of("1 234"), "a.tsv", "no unit or sign for thousands"),
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
    "capitals": ["SUB-01", "Sub-02"],
    "underscores": ["sub_01", "SUB02"],
    "C39 others beside": ["2", "1", "sub-7", "Anna"],
}


@pytest.mark.parametrize("case", IDS)
def test_people_are_matched_with_their_rows(tmp_path, case):
    rows = [[own, str(10 * i), "0"] for i, own in enumerate(IDS[case])]
    path = write(tmp_path, text(*rows))
    found = read_rows(path, COLUMNS, people=["sub-01", "sub-02"])
    numbers = [re.sub("(?i)^sub[-_]?0*", "", own).lstrip("0") for own in IDS[case]]
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
        (["sub-01"], ["sub-7"], "lacks sub-01 (has sub-7, after whom no file is"),
        (["sub-01"], [], "lacks sub-01; add them, or leave sub-01 out"),
        (["sub-1-2"], ["2-Jan"], "2-Jan, which a spreadsheet made of labels"),
        (["sub-12E5"], ["1.20E+06"], "1.20E+06, which a spreadsheet made of labels"),
        (["sub-01"], ["sub-01", "1.0"], "sub-01, 1.0 may be of sub-01; write names"),
        (["sub-A"], ["a", "SUB_a"], "a, SUB_a may be of sub-A; write names as in the"),
        (["sub-N1"], ["N_1x"], "lacks sub-N1 (has N_1x, after whom no file is"),
        (
            ["Pitt_0050003_func_preproc", "Pitt_0050004_func_preproc"],
            ["Pitt_0050003", "Pitt_0050004", "NYU_0050952"],
            "is the person, person: '{person}_func_preproc*'",
        ),
        (["A_1_run", "B_1_end"], ["A_1", "B_1"], "lacks A_1_run, B_1_end (has A_1"),
    ],
)
def test_who_cannot_be_matched_surely_is_refused(tmp_path, people, ids, words):
    rows = [[own, "1", "2"] for own in ids]
    path = write(tmp_path, text(*rows))
    about = {"people": people, "remedy": "leave {} out".format}
    assert words in refused(read_rows, path, COLUMNS, **about)


def test_rows_of_others_may_be_missing(tmp_path):
    path = write(tmp_path, of("n/a"))
    same(read_rows(path, COLUMNS, people=["sub-01"]), {"sub-01": [31, 0.5]})


def test_whom_to_leave_out_is_said_by_label():
    about = {"name": "north", "data": "public", "epsilon": 9, "delta": 1e-5}
    images = {"derivatives": "data", "without": ["07"]}
    site = SiteConfig(**about, unit="subject", images=images)
    assert 'without: ["03"] in the site file' in leave_out(site, "sub-03")


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


# --- a study ------------------------------------------------------------------------

PEOPLE = [f"0{i}" for i in range(1, 7)]
GROUPED = {
    "group": {"groups": ["control", "patient"]},
    "age": {"mean": 40, "deviation": 12},
}
BUDGET = {
    "epsilon": 2.0,
    "delta": 1e-5,
    "unit": "subject",
    "relation": "replace-one",
    "n_colluding": 1,
}


def image(path: Path, seed: int = 0) -> None:
    values = np.random.default_rng(seed).uniform(0, 1, (4, 4, 4)).astype(np.float32)
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(values, np.diag([4.0, 4.0, 4.0, 1.0])), path)


def map_study(covariates=GROUPED, images=None, **contrast) -> None:
    """Maps of six people at each of two sites, with a table of people."""
    ones = np.ones((4, 4, 4), np.uint8)
    nib.save(nib.Nifti1Image(ones, np.diag([4.0, 4.0, 4.0, 1.0])), "mask.nii.gz")
    for site in ("north", "south"):
        rows = []
        for i, own in enumerate(PEOPLE):
            name = f"sub-{own}_statmap.nii.gz"
            image(Path(f"{site}/sub-{own}/{name}"), i + 10 * (site == "south"))
            group = ("control", "patient")[i % 2]
            rows.append([f"sub-{own}", group, str(30 + 4 * i), f"sub-{own}/{name}"])
        header = ["participant_id", "group", "age", "file"]
        Path(f"{site}/participants.tsv").write_text(text(*rows, header=header))
        about = {"name": site, "images": images or site, "data": "simulated"}
        about |= {"epsilon": 20.0, "delta": 1e-5, "unit": "subject", "min_colluding": 1}
        Path(f"{site}.yaml").write_text(yaml.safe_dump(about))
    study = {
        "study": "maps",
        "sites": ["north.yaml", "south.yaml"],
        "arm": "cape",
        "budget": BUDGET,
        "space": {"mask": "mask.nii.gz", "basis": "grid", "grid_size": 2},
        "rows": {"features": {"kind": "maps", "bounds": [0, 1]}},
        "contrast": {"covariates": covariates, **contrast},
    }
    Path("study.yaml").write_text(yaml.safe_dump(study, sort_keys=False))


def edited(path: str, old: str, new: str) -> None:
    content = Path(path).read_text()
    assert old in content
    Path(path).write_text(content.replace(old, new))


def outcome(capsys, *command: str) -> tuple[int, str]:
    """Exit status of a command, and what it says."""
    capsys.readouterr()
    status = cli.main([*command])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    if status:
        assert len(err.splitlines()) == 1, err
    return status, out + err


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_groups_of_words_go_through_a_study(here, capsys):
    map_study()
    for site in ("north", "south"):  # spreadsheets' names of people
        table = Path(f"{site}/participants.tsv")
        table.write_text(table.read_text().replace("sub-0", "").replace("4\t", "4.0\t"))
        table.write_text(table.read_text().replace("\t1/", "\tsub-01/"))
    assert outcome(capsys, "validate", "study.yaml")[0] == 0
    status, row = outcome(capsys, "site-means", "study.yaml", "--site", "north")
    assert status == 0
    head, cells = (line.split("\t") for line in row.splitlines())
    assert head == ["site", "group=control", "group=patient", "age"]
    assert cells[:3] == ["north", "3", "3"]
    assert outcome(capsys, "prepare", "study.yaml", "--site", "north")[0] == 0
    study = load_study("study.yaml")
    assert [e.name for e in ContrastKind(study).effects][:2] == [
        "group patient - control",
        "age",
    ]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("sub-03\tcontrol", "sub-03\tpartner", "one of control, patient, the words"),
        ("sub-03\tcontrol", "sub-03\tn/a", "group of sub-03 is missing"),
        ("\t38\t", "\t-9999\t", "age of sub-03 is -9999, beyond its public bounds"),
        (
            "\t38\t",
            "\t\t",
            "age of sub-03 is missing; fill in by a public rule, or leave",
        ),
        (
            "sub-03\t",
            "sub-9\t",
            "lacks sub-03 (has sub-9, after whom no file is",
        ),
    ],
)
def test_what_a_table_of_people_lacks_is_refused(here, capsys, old, new, words):
    map_study()
    edited("north/participants.tsv", old, new)
    status, line = outcome(capsys, "validate", "study.yaml")
    assert status == 2 and words in line and "north/participants.tsv" in line


def test_people_without_images_are_named(here, capsys):
    """N23"""
    map_study()
    shutil.rmtree("north/sub-03")
    status, lines = outcome(capsys, "validate", "study.yaml")
    assert status == 0
    assert "note: north: 1 people of its table have no images, and are not" in lines
    assert "in the study: sub-03" in lines and "note: south" not in lines


def public_means(north: str = "3\t3\t40", south: str = "3\t3\t40") -> None:
    head = "site\tgroup=control\tgroup=patient\tage"
    Path("means.tsv").write_text(f"{head}\nnorth\t{north}\nsouth\t{south}\n")


@pytest.mark.parametrize(
    ("north", "words"),
    [
        ("3\t3\t40", ""),
        ("2\t4\t40", "has group=control 2, here 3, group=patient 4, here 3; make"),
        ("30\t30\t40", "must be of its own people, has group=control 30, here 3"),
        ("3\t3\t41", "has age 41, here 40; make the row anew: capeneuro"),
    ],
)
def test_public_means_are_those_of_the_people(here, capsys, north, words):
    """C43"""
    map_study(means="means.tsv")
    public_means(north)
    for command in (
        ("validate", "study.yaml"),
        ("prepare", "study.yaml", "--site", "north"),
    ):
        status, line = outcome(capsys, *command)
        assert status == (2 if words else 0) and words in line, line


def test_public_counts_of_somebody_without_an_image(here, capsys):
    """N23"""
    map_study(means="means.tsv")
    public_means()
    shutil.rmtree("north/sub-03")
    status, line = outcome(capsys, "validate", "study.yaml")
    assert status == 2 and "has group=control 3, here 2" in line
    assert "(no images of sub-03)" in line


def test_a_site_is_called_as_its_file_is(here, capsys):
    map_study()
    edited("north.yaml", "name: north", "name: elsewhere")
    status, line = outcome(capsys, "validate", "study.yaml")
    assert status == 2 and "must be that of its file in contrasts" in line


COINSTAC = {"table": "north/covariates.csv", "column": "niftifile"}


def coinstac(*rows: tuple[str, ...], **images) -> None:
    words = {"isControl": {"groups": [True, False]}, "age": GROUPED["age"]}
    map_study(words)
    for site in ("north", "south"):
        lines = [
            [f"sub-{own}/sub-{own}_statmap.nii.gz", c, f"{30 + 3 * int(own)}"]
            for own, c in zip(PEOPLE, ["True", "False"] * 3, strict=True)
        ]
        lines += [list(row) for row in rows] if site == "north" else []
        header = ["niftifile", "isControl", "age"]
        Path(f"{site}/covariates.csv").write_text(text(*lines, header=header, by=","))
        about = yaml.safe_load(Path(f"{site}.yaml").read_text())
        about["images"] = {**COINSTAC, "table": f"{site}/covariates.csv", **images}
        Path(f"{site}.yaml").write_text(yaml.safe_dump(about))


def test_a_table_that_names_files_is_given_as_it_is(here, capsys):
    coinstac()
    assert outcome(capsys, "check", "study.yaml")[0] == 0
    status, lines = outcome(capsys, "validate", "study.yaml")
    assert status == 0 and "north: 6 people" in lines, lines
    assert outcome(capsys, "prepare", "study.yaml", "--site", "north")[0] == 0
    assert "isControl false - true" in [
        e.name for e in ContrastKind(load_study("study.yaml")).effects
    ]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (("sub-07_statmap.nii.gz", "True", "40"), "file not found"),
        (("", "True", "40"), "must be a name of up to 100 letters"),
        (
            ("sub-01/../sub-01/sub-01_statmap.nii.gz", "True", "40"),
            "must have a row for each person, twice: sub-01",
        ),
        (
            ("sub-twin.nii.gz", "True", "40"),
            "sub-twin.nii.gz are one file; give each",
        ),
    ],
)
def test_a_row_without_a_file_of_its_own_is_refused(here, capsys, row, words):
    coinstac(row)
    Path("north/sub-twin.nii.gz").symlink_to("sub-01/sub-01_statmap.nii.gz")
    status, line = outcome(capsys, "validate", "study.yaml")
    assert status == 2 and words in line


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([("1", "2"), ("2", "1")], "sub-2.nii is of 2 by its name and of 1 by its row"),
        ([("sub-01", "2"), ("sub-02", "3")], "sub-2.nii is of sub-02 by its name and"),
        ([("1", "1"), ("01", "3")], "1 and 01 differ by case, noughts"),
    ],
    ids=["exchanged", "shifted", "twice"],
)
@pytest.mark.parametrize("without", [[], ["1"]])
def test_a_row_of_somebody_elses_file_is_refused(here, rows, words, without):
    """Who is left out would stay, by the file of another row."""
    lines = [f"{own}\tsub-{file}.nii" for own, file in rows]
    Path("list.tsv").write_text("\n".join(["participant_id\tfile", *lines]))
    for _, file in rows:
        Path(f"sub-{file}.nii").write_text(file)
    images = {"table": "list.tsv", "column": "file", "without": without}
    assert words in refused(inventory_of_maps, sites.site(images=images))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["sub-CMU_01/con.nii", "sub-CMU_02/con.nii"], ["sub-CMU_01", "sub-CMU_02"]),
        (["jose\u0301.nii", "b.nii"], ["jos\u00e9", "b"]),
        (["anna_pre.nii", "anna_post.nii"], "may be of 2 people or of 1"),
        (["sub-CMU_1.nii", "sub-CMU_2.nii"], "may be of 2 people or of 1"),
        (["sub-1_run-1.nii", "sub-1_run-2.nii"], "a row for each person, twice: sub-1"),
    ],
    ids=["folders", "accents", "before-and-after", "underscores", "runs"],
)
def test_people_of_a_table_of_files_are_those_of_the_files(here, files, expected):
    for file in files:
        write(Path(), file, "x.txt").rename(_made(file))
    names = [unicodedata.normalize("NFC", file) for file in files]
    Path("list.tsv").write_text("\n".join(["file\tage", *(f"{n}\t1" for n in names)]))
    found = sites.site(images={"table": "list.tsv", "column": "file"})
    if isinstance(expected, list):
        assert list(inventory_of_maps(found).people) == expected
        return
    line = refused(inventory_of_maps, found)
    assert expected in line and ("participant_id" in line or "keep one" in line)


def _made(file: str) -> Path:
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    return Path(file)


@pytest.mark.parametrize(
    "again", ["Sub-2", "02", "2.0", "sub_2", "\uff12", "sub-2_ses-2", "SUB2"]
)
def test_who_left_is_not_there_under_another_writing(here, again):
    rows = [[own, "1", "2"] for own in ("sub-1", "sub-2", again)]
    path = write(Path(), text(*rows))
    about = sites.site(images=str(path), without=["2"])
    line = refused(
        lambda: inventory.of_rows(about, path, read_rows(path, COLUMNS)).people
    )
    assert "may be one person" in line or "a row for each person, twice" in line
    path = write(Path(), text(rows[0], rows[2]))
    if "ses" in again:  # a session is no person
        line = refused(inventory.of_rows, about, path, read_rows(path, COLUMNS))
        assert "without: nobody is called '2' (there is 2_ses-2)" in line
        return
    people = inventory.of_rows(about, path, read_rows(path, COLUMNS)).people
    assert list(people) == ["sub-1"]


@pytest.mark.parametrize("key", ["without", "images.without"])
def test_who_left_after_prepare_is_not_released(here, capsys, key):
    map_study()
    for name in ("north", "south"):
        table = {"table": f"{name}/participants.tsv", "column": "file"}
        edited(f"{name}.yaml", f"images: {name}", f"images: {table}")
    accept = "accept: [{rule: noise, reason: a test of the steps}]\n"
    Path("study.yaml").write_text(Path("study.yaml").read_text() + accept)
    for name in ("north", "south"):
        assert outcome(capsys, "prepare", "study.yaml", "--site", name)[0] == 0
    about = yaml.safe_load(Path("north.yaml").read_text())
    (about["images"] if "images" in key else about)["without"] = ["3"]
    Path("north.yaml").write_text(yaml.safe_dump(about))
    status, line = outcome(capsys, "contrast", "study.yaml")
    assert status == 2
    assert "north: without: sub-03 left and is among those who were prepared" in line
    assert outcome(capsys, "prepare", "study.yaml", "--site", "north")[0] == 0
    assert outcome(capsys, "contrast", "study.yaml")[0] == 0


def test_who_left_is_not_said_to_lack_an_image(here, capsys):
    map_study()
    edited("north/participants.tsv", "sub-03", "SUB-3")
    about = Path("north.yaml").read_text()
    Path("north.yaml").write_text(about + "without: ['03']\n")
    status, lines = outcome(capsys, "validate", "study.yaml")
    assert status == 0 and "north: 5 people" in lines and "no images" not in lines


def test_who_is_left_out_by_name_needs_no_file(here, capsys):
    coinstac(("sub-07_statmap.nii.gz", "n/a", "40"), without=["sub-06"])
    edited("north.yaml", "- sub-06", "- sub-07")
    status, lines = outcome(capsys, "validate", "study.yaml")
    assert status == 0 and "north: 6 people" in lines and "south: 5 people" in lines
    edited("north.yaml", "- sub-07", "- sub-17")
    status, line = outcome(capsys, "validate", "study.yaml")
    assert status == 2 and "images.without: nobody is called '17'" in line


def test_a_table_of_files_is_of_maps(here, capsys):
    coinstac()
    study = yaml.safe_load(Path("study.yaml").read_text()) | {"space": None}
    Path("features.tsv").write_text("feature\tlow\thigh\na\t0\t1\n")
    study["rows"] = {"features": {"kind": "table", "features": "features.tsv"}}
    Path("study.yaml").write_text(yaml.safe_dump(study))
    status, line = outcome(capsys, "check", "study.yaml")
    assert status == 2 and "a table of files is for studies of one map" in line


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (["control"], "must be two or more words that differ"),
        (["a", "a"], "must be two or more words that differ, got a, a"),
        (["a", "n/a"], "must be words, got 'n/a', which means a missing value"),
        ([1, "a"], "groups"),
        ([True, 1], "groups"),
    ],
)
def test_words_of_groups_differ(here, capsys, groups, words):
    map_study({"group": {"groups": groups}})
    status, line = outcome(capsys, "check", "study.yaml")
    assert status == 2 and words in line


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (
            "epsilon",
            True,
            "budget.epsilon: must be a number, with a point as in 1.5, got",
        ),
        ("delta", False, "budget.delta: must be a number"),
        ("epsilon", float("nan"), "budget.epsilon"),
        ("epsilon", float("inf"), "budget.epsilon"),
        ("n_colluding", True, "budget.n_colluding: must be a whole number"),
        ("epsilon", "5,0", "budget.epsilon: must be a number"),
        (
            "site_epsilon",
            {"north": True},
            "budget.site_epsilon.north: must be a number",
        ),
    ],
)
def test_no_number_but_a_number(here, capsys, key, value, words):
    map_study()
    study = yaml.safe_load(Path("study.yaml").read_text())
    study["budget"][key] = value
    Path("study.yaml").write_text(yaml.safe_dump(study))
    status, line = outcome(capsys, "check", "study.yaml")
    assert status == 2 and words in line


def test_numbers_in_a_list_are_no_booleans(here, capsys):
    map_study()
    edited("study.yaml", "    - 0\n    - 1\n", "    - false\n    - 1\n")
    status, line = outcome(capsys, "check", "study.yaml")
    assert status == 2 and "rows.features.bounds" in line


SPOIL = {
    "C44 age in months": (
        "months",
        (480, 144),
        lambda i, age: age * 12,
        "age and months, which",
    ),
    "C44 in whole years": (
        "years",
        (40, 12),
        lambda i, age: age // 1,
        "age and years, which",
    ),
    "C44 the group twice": (
        "twin",
        (0, 1),
        lambda i, age: i % 2,
        "group patient - control and twin, which are collinear; leave one",
    ),
    "C44 constant": (
        "dose",
        (5, 9),
        lambda i, age: 5,
        "dose, the same for all people of each",
    ),
}


@pytest.mark.parametrize("case", SPOIL)
def test_covariates_that_say_the_same_are_refused_before_a_release(here, capsys, case):
    name, (mean, deviation), value, words = SPOIL[case]
    map_study({**GROUPED, name: {"mean": mean, "deviation": deviation}})
    for k, site in enumerate(("north", "south")):
        header = ["participant_id", "group", "age", name]
        rows = []
        for i, own in enumerate(PEOPLE):
            age = 30.3 + 1.9 * i * (i + k)
            group = ("control", "patient")[i % 2]
            rows.append([f"sub-{own}", group, f"{age:g}", f"{value(i, age):g}"])
        Path(f"{site}/participants.tsv").write_text(text(*rows, header=header))
    status, line = outcome(capsys, "validate", "study.yaml")
    assert status == 2 and "contrast.covariates: not estimable: " in line
    assert words in line
    study = yaml.safe_load(Path("study.yaml").read_text())
    study["contrast"]["covariates"] = GROUPED
    Path("study.yaml").write_text(yaml.safe_dump(study))
    assert outcome(capsys, "validate", "study.yaml")[0] == 0


@pytest.mark.parametrize("kind", ["regression", "network"])
def test_groups_and_features_of_words_are_predicted(here, capsys, kind):
    rng = np.random.default_rng(0)
    for site in ("north", "south"):
        is_patient, is_male = rng.random((2, 150)) < 0.5
        score = rng.normal(2 * is_patient, 1)
        rows = [
            [f"{i:03}", f"{s:g}", "MF"[int(not m)], ("no", "yes")[int(p)]]
            for i, (s, m, p) in enumerate(zip(score, is_male, is_patient, strict=True))
        ]
        header = ["participant_id", "score", "sex", "ill"]
        Path(f"{site}.csv").write_text(text(*rows, header=header, by=";"))
        about = {"name": site, "images": f"{site}.csv", "data": "simulated"}
        about |= {"epsilon": 90.0, "delta": 1e-5, "unit": "subject", "min_colluding": 1}
        Path(f"{site}.yaml").write_text(yaml.safe_dump(about))
    Path("features.tsv").write_text("feature\tlow\thigh\nscore\t-2\t4\n")
    own = {"target": "ill", "bounds": ["no", "yes"]}
    own |= {"task": "logistic"} if kind == "regression" else {"n_rounds": 3}
    features = {"kind": "table", "features": "features.tsv"}
    study = {
        "study": "words",
        "sites": ["north.yaml", "south.yaml"],
        "arm": "cape",
        "budget": {**BUDGET, "epsilon": 50.0},
        "space": None,
        "rows": {"features": features, "covariates": {"sex": ["F", "M"]}},
        kind: own,
    }
    Path("study.yaml").write_text(yaml.safe_dump(study))
    steps = [["validate"], *(["prepare", "--site", s] for s in ("north", "south"))]
    for step, *more in [*steps, [kind], ["maps"], ["score"], ["report"]]:
        status, said = outcome(capsys, step, "study.yaml", *more)
        assert status == 0, said
    page = Path("results/words/report.html").read_text()
    assert "ill being yes and not no" in " ".join(page.split())
    if kind == "network":
        return
    model = "results/words/group_desc-regression_model.json"
    assert json.loads(Path(model).read_text())["words"] == {
        "sex": ["F", "M"],
        "ill": ["no", "yes"],
    }
    card = Path(model).with_name("group_desc-regression_modelcard.md").read_text()
    assert "how probable ill is to be yes, not no" in card
    Path("new.csv").write_text("participant_id,score,sex\nA,4,M\nB,-2,F\n")
    status, said = outcome(capsys, "predict", model, "new.csv", "--site", "north")
    (_, a), (_, b) = (line.split("\t") for line in said.splitlines()[1:])
    assert status == 0 and float(a) > 0.5 > float(b)
    edited("new.csv", ",M", ",1")
    status, line = outcome(capsys, "predict", model, "new.csv", "--site", "north")
    assert status == 2 and "sex must be one of F, M" in line
    edited("study.yaml", "task: logistic", "task: linear")
    status, line = outcome(capsys, "check", "study.yaml")
    assert status == 2 and "bounds: must be two numbers with task: linear" in line


def test_a_column_is_suggested_once_however_many_are_like_it(tmp_path):
    path = tmp_path / "covariance.tsv"
    path.write_text("feature\tleft temporal\tmean\nleft temporal\t1\t0\n")
    names = [f"left temporal {k}" for k in range(30_000)]
    with pytest.raises(ConfigError, match=r"and 29990 more; it has .* did") as refused:
        check_columns(path, open_texts(path), names, "")
    assert str(refused.value).endswith("; did you mean left temporal?")
