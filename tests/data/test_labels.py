"""Who is named in a site's file is meant as written: nobody else, and nobody missed."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from capeneuro.config import errors, load
from capeneuro.config.errors import ConfigError
from capeneuro.data import derivatives, inventory

LABELS = st.text("0123456789", min_size=1, max_size=4)
LABELS |= st.from_regex("[A-Za-z0-9]{1,6}", fullmatch=True)
LABELS |= st.sampled_from(["no", "NO", "on", "yes", "0x1F", "1e3", "010", "08", "0o7"])
N_SETS = 300


def write_people(labels) -> None:
    for label in labels:
        run = Path(f"data/sub-{label}/func/sub-{label}_task-rest_bold.nii.gz")
        run.parent.mkdir(parents=True, exist_ok=True)
        run.touch()


def write_site(**images) -> None:
    content = {"name": "north", "data": "simulated", "epsilon": 5.0, "delta": 1e-5}
    content |= {"unit": "subject", "images": {"derivatives": "data", "desc": []}}
    content["images"] |= {key: value for key, value in images.items() if value}
    Path("north.yaml").write_text(yaml.safe_dump(content))


def released() -> set[str]:
    site = load.load_site("north.yaml")
    return {name[4:] for name in derivatives.find_runs(site)}


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("written", ["010", "[010]", "['010']", "[010, 011]"])
def test_a_label_of_octal_digits_is_the_label_in_the_file(here, written):
    write_people(["008", "009", "010", "011"])
    write_site()
    text = (
        Path("north.yaml")
        .read_text()
        .replace("desc: []", f"desc: []\n  without: {written}")
    )
    Path("north.yaml").write_text(text)
    assert "010" not in released() and "008" in released()


@pytest.mark.parametrize("key", ["people", "without"])
def test_a_label_that_is_nobodys_is_refused_with_the_nearest(here, key):
    write_people(["01", "02", "03"])
    write_site(**{key: ["O3"]})
    with pytest.raises(ConfigError, match=f"images.{key}: nobody is called 'O3' .*03"):
        released()


def test_a_number_that_may_be_two_people_is_refused(here):
    write_people(["8", "008", "09"])
    write_site(without=["08"])
    with pytest.raises(ConfigError, match="3 files may be of 3 people or of 2"):
        released()
    write_site(without=["8", "9"])
    edit = Path("north.yaml").read_text() + "person: 'sub-{person}/*'\n"
    Path("north.yaml").write_text(edit)
    assert set(derivatives.find_runs(load.load_site("north.yaml"))) == {"008"}


@pytest.mark.parametrize("is_quoted", [True, False])
def test_who_withdrew_is_never_among_the_released(here, is_quoted):
    """What cannot be told is refused. Ran once with 5,000 sets of labels each."""
    n_told = 0

    @settings(max_examples=N_SETS, deadline=None, database=None, derandomize=True)
    @given(st.sets(LABELS, min_size=2, max_size=6), st.data())
    def check(labels, data):
        nonlocal n_told
        labels = sorted(labels)
        left_out = data.draw(st.sets(st.sampled_from(labels), min_size=1))
        shown = [f'"{label}"' if is_quoted else label for label in left_out]
        text = f"people: [{', '.join(shown)}]"
        Path("labels.yaml").write_text(text)
        try:
            content = errors.content(Path("labels.yaml"))["people"]
            named = derivatives.Derivatives(derivatives="data", without=content).without
            without = inventory.named(named, labels, "images.without")
        except (ConfigError, ValueError):
            assert not is_quoted  # such as 1e3: a number, which no label is
            return
        n_told += 1
        assert without == left_out

    write_site()
    check()
    assert n_told > (0.99 if is_quoted else 0.7) * N_SETS


def test_a_reader_of_octal_numbers_would_be_noticed(here, monkeypatch):
    """Planted: the YAML of before."""
    monkeypatch.setattr(errors, "PlainYaml", yaml.SafeLoader)
    with pytest.raises(AssertionError):
        test_who_withdrew_is_never_among_the_released(here, False)
