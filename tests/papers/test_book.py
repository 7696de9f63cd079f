"""The book: verdicts are whole, and pages say what cells and closed forms say."""

import re

import independent_rows
import pytest
from workflows import ROOT

from capeneuro.config.errors import ConfigError
from papers import book, claims, grid, status
from papers import commands as command


def test_pages_are_as_their_tables_and_closed_forms_make_them():
    """Where it fails, ``python -m papers book`` writes the page anew."""
    for path in sorted(book.DOCS.glob("*.md")):
        assert path.read_text() == book.filled(path.read_text()), path.name
    assert (book.DOCS / "book.md").read_text() == book.page()
    assert (book.DOCS / "book.tsv").read_text() == book.as_table()
    assert (book.DOCS / "open-problems.md").read_text() == book.open_problems()


def test_every_doubt_has_a_verdict_and_every_command_exists():
    rows = book.verdicts()
    ids = [row["id"] for row in rows]
    assert len(set(ids)) == len(ids)
    assert {f"X{i}" for i in range(1, 29)} <= set(ids)
    used = set()
    for row in rows:
        assert all(row[key] for key in ("claim", "source", "number")), row
        assert row["verdict"] in book.VOCABULARY and row["chapter"] in book.CHAPTERS
        kind, name = row["command"].split(" ", 1)
        if kind == "claim":
            used.add(name)
        else:
            path, _, test = name.partition("::")
            path = f"papers/grids/{name}.yaml" if kind == "grid" else path
            text = (ROOT / path).read_text()
            assert not test or re.search(rf"^def {test}\(", text, re.MULTILINE), row
    assert used == set(claims.CLAIMS)


def test_rows_drawn_by_a_fixed_seed_agree_with_other_code(capsys):
    """A new row changes the draw, and the tool needs code for what it then draws."""
    assert independent_rows.main() == 0, capsys.readouterr().out


def test_what_is_recorded_is_of_the_settings_of_today():
    """A figure file that was edited since has to be run, and recorded, again."""
    for name in status.recorded():
        figure = grid.load(grid.GRIDS / f"{name}.yaml")
        assert status.kept(figure, command.module_of(figure)) != "other settings"
        assert {row["score"] for row in book.rows_of(name)} <= set(figure.scores)


@pytest.fixture
def kept(tmp_path, monkeypatch) -> str:
    """A recorded figure, and a page with its table."""
    monkeypatch.setattr(status, "RESULTS", tmp_path)
    lines = ["method\tepsilon\tscore\tmean\tmin\tmax\tn_repeats\tse"]
    lines += [
        "ours\t0.1\tngi\t0.01795\t0.01\t0.02\t3\t0.0031",
        "ours\t1\tngi\t0.5\t0.5\t0.5\t3\t0",
        "exact\t0.1\tngi\t0.001\t0\t1\t3\t0.1",
        "theirs\t1\tngi\t0.25\t0.2\t0.3\t3\t0.029",
    ]
    (tmp_path / "toy.tsv").write_text("\n".join(lines) + "\n")
    return (
        "Words.\n<!-- table: {figure: toy, rows: [method], columns: [epsilon], "
        "score: ngi, best: least, among: [ours, theirs]} -->\nold\n"
        "<!-- end -->\nMore.\n"
    )


def test_a_table_is_drawn_between_its_comments_with_the_best_bold(kept):
    page = book.filled(kept)
    assert page.splitlines()[2:7] == [
        "| method | epsilon 0.1 | 1 |",
        "| --- | --- | --- |",
        "| ours | **0.0180** | 0.500 |",
        "| exact | 0.00100 |  |",
        "| theirs |  | **0.250** |",
    ]
    assert page.startswith("Words.") and page.endswith("<!-- end -->\nMore.\n")
    assert book.filled(page) == page
    shown = book.filled(
        kept.replace("best: least", "spread: range, values: {epsilon: [1]}")
    )
    assert "| theirs | 0.250 (0.200-0.300) |" in shown and "0.1" not in shown
    shown = book.filled(kept.replace("best: least", "spread: errors"))
    assert "| ours | 0.0180 (0.0031) | 0.500 |" in shown
    # A line that no cell measured may be the best.
    shown = book.filled(
        kept.replace("[ours, theirs]", "[ours, known], also: {known: [0.01, 0.9]}")
    )
    assert "| known | **0.0100** | 0.900 |\n| ours | 0.0180 | **0.500** |" in shown
    # A head names what is new in it; a score may be a column, in other words.
    two = "columns: [score, epsilon], labels: {ngi: index}"
    shown = book.filled(kept.replace("columns: [epsilon]", two))
    assert "| method | index, epsilon 0.1 | 1 |" in shown
    with pytest.raises(ConfigError, match="toy: no row has the score 'ng'"):
        book.filled(kept.replace("score: ngi", "score: ng"))
    with pytest.raises(ConfigError, match="run: python -m papers record"):
        book.filled(kept.replace("toy", "other"))


def test_a_verdict_takes_its_numbers_from_the_cells(kept, tmp_path, monkeypatch):
    names = [
        "chapter",
        "id",
        "claim",
        "source",
        "setting",
        "verdict",
        "number",
        "command",
    ]
    row = "ica\tA\tc\ts\tt\tfalse\t{toy ngi; method=ours; epsilon=0.1} of 1\tgrid toy"
    (tmp_path / "verdicts.tsv").write_text("\t".join(names) + "\n" + row + "\n")
    monkeypatch.setattr(book, "VERDICTS", tmp_path / "verdicts.tsv")
    assert book.verdicts()[0]["number"] == "0.0180 of 1"
    (tmp_path / "verdicts.tsv").write_text(
        "\t".join(names) + "\n" + row.replace("; epsilon=0.1", "") + "\n"
    )
    with pytest.raises(ConfigError, match="method=ours}: 2 rows"):
        book.verdicts()
    counted = "{count toy ngi < 0.3}, {count toy ngi >= 0.3; method=ours}"
    assert book.numbered(counted) == "3 of 4, 1 of 2"
    with pytest.raises(ConfigError, match="no row of papers/results fits"):
        book.numbered("{count toy r < 0.3}")
    assert book.numbered("{claim X7}").endswith("honest: 5.45")


def test_a_claim_is_computed_when_it_is_asked(capsys):
    assert command.main(["claim", "X7", "P3.1"]) == 0
    out = capsys.readouterr().out
    assert "X7: exact over claimed mu^2 with 2 of 10 sites honest: 5.45" in out
    assert "7.00 with S_C = 3" in out
    assert command.main(["claim", "X99"]) == 2
    assert "no claim 'X99'; known: X1, X2" in capsys.readouterr().err
