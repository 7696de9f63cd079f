"""Study and site files: what is accepted, and what each mistake is told."""

import contextlib
import copy
import re
from functools import partial
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from capeneuro.config import components, load, scaffold
from capeneuro.config.components import ComponentsConfig
from capeneuro.config.errors import ConfigError, check_all
from capeneuro.config.sections import key_texts
from capeneuro.config.site import SiteConfig
from capeneuro.studies import sites as site_files

ROOT = Path(__file__).parents[2]
FOLDERS = ROOT / "config", ROOT / "evidence/truth/studies"
STUDIES = [ROOT / "config/config.yaml"]
STUDIES += [path for folder in FOLDERS for path in sorted(folder.glob("*/study.yaml"))]
SITES = sorted(
    path
    for folder in FOLDERS
    for path in folder.glob("*/sites/*.yaml")
    if path.name != "common.yaml"
)
STUDY = {
    **yaml.safe_load(scaffold.study_file(["a", "b", "c", "d"])),
    "score": {"truth": None, "reference": False},
}
SITE = {**yaml.safe_load(scaffold.site_file("a")), "delta": 1e-5, "unit": "subject"}
DATA = {"kind": "simtb", "seed": 1, "n_subjects": 2, "n_volumes": 20}
PAINTED = {"kind": "painted", "series": "s", "atlas": "a.nii.gz"}
MISSING = object()
MODELS = [
    ComponentsConfig,
    SiteConfig,
    components.Simulation,
    components.Painting,
    *(
        f.annotation
        for f in ComponentsConfig.model_fields.values()
        if isinstance(f.annotation, type) and issubclass(f.annotation, BaseModel)
    ),
]


def changed(content: dict, changes: dict) -> dict:
    """A copy with other values; dots separate sections, MISSING removes a key."""
    content = copy.deepcopy(content)
    for name, value in changes.items():
        *parents, key = name.split(".")
        inner = content
        for parent in parents:
            inner = inner[parent]
        if value is MISSING:
            del inner[key]
        else:
            inner[key] = value
    return content


def write(folder: Path, content: dict, name: str = "study.yaml") -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump(content))
    return path


def study(folder: Path, **changes) -> ComponentsConfig:
    """The new study of `init` with other values, written and loaded."""
    return load.load_study(write(folder, changed(STUDY, changes)))


def site(folder: Path, **changes) -> SiteConfig:
    return load.load_site(write(folder, changed(SITE, changes), "site.yaml"))


def errors(load, folder: Path, changes: dict) -> list[str]:
    """Lines of the error, each without the path that it begins with."""
    with pytest.raises(ConfigError) as caught:
        load(folder, **changes)
    lines = str(caught.value).splitlines()
    assert all(line.startswith(str(folder)) for line in lines)
    return [line.split(".yaml: ", 1)[1] for line in lines]


# Unknown keys


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("n_component", "n_components"),
        ("studdy", "study"),
        ("space.resampel", "resample"),
        ("cleaning.standardise", "standardize"),
        ("budget.epsilom", "epsilon"),
        ("budget.colluding", "n_colluding"),
        ("pca.norm_bounds", "norm_bound"),
        ("ica.n_round", "n_rounds"),
        ("score.thruth", "truth"),
        ("data.n_subject", "n_subjects"),
        ("data.repetition", "repetition_time"),
    ],
)
def test_an_unknown_key_names_the_nearest(tmp_path, key, near):
    (line,) = errors(study, tmp_path, {"data": dict(DATA), key: 1})
    assert line == f"{key}: unknown key; did you mean {near!r}?"


def test_a_key_in_the_wrong_section_names_its_own(tmp_path):
    (line,) = errors(study, tmp_path, {"pca.noise_ratio_per_site": 1.0})
    assert line.endswith("unknown key; it is a key of budget")


def test_an_unknown_key_of_painted_data_knows_its_own_keys(tmp_path):
    (line,) = errors(study, tmp_path, {"data": {**PAINTED, "serie": 1}})
    assert "did you mean 'series'" in line
    (line,) = errors(study, tmp_path, {"data": {**PAINTED, "n_volumes": 1}})
    assert "unknown key" in line
    assert "n_volumes'" not in line


@pytest.mark.parametrize(
    ("altered", "said"),
    [
        ({"network": 11, "how": "moved"}, "at most n_components 10, got 11"),
        ({"network": 0, "how": "moved"}, "greater than or equal to 1, got 0"),
        ({"network": 4, "how": "turned"}, "'moved', 'missing' or 'split', got 'turned"),
        ({"network": 4}, "data.altered.how: required key is missing"),
        ({"networks": 4, "how": "split"}, "did you mean 'network'?"),
    ],
)
def test_an_altered_network_must_be_there(tmp_path, altered, said):
    lines = errors(study, tmp_path, {"data": {**DATA, "altered": altered}})
    assert said in lines[-1] and lines[-1].startswith("data.altered")
    fine = {**DATA, "altered": {"network": 10, "how": "split"}}
    assert study(tmp_path, data=fine).data.altered.network == 10


def test_an_unknown_key_near_nothing_lists_what_is_known(tmp_path):
    (line,) = errors(study, tmp_path, {"ica.qqq": 1})
    known = ", ".join(sorted(components.IcaOptions.model_fields))
    assert line == f"ica.qqq: unknown key; known: {known}"


@pytest.mark.parametrize(
    ("key", "blocks", "message"),
    [
        (
            "names",
            [{"atlas": "lobes.nii.gz", "labels": "x"}],
            "names.0.atlas: unknown key; known: file, labels",
        ),
        (
            "accept",
            [{"rule": "noise", "reason": "a small pilot"}, {"rulee": "gain"}],
            "accept.1.rulee: unknown key; did you mean 'rule'?",
        ),
    ],
)
def test_an_unknown_key_in_a_list_of_blocks_names_the_nearest(
    tmp_path, key, blocks, message
):
    assert message in errors(study, tmp_path, {key: blocks})


def test_an_unknown_key_of_a_site_file(tmp_path):
    (line,) = errors(site, tmp_path, {"image": "x"})
    assert line == "image: unknown key; did you mean 'images'?"


# Values


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"budget.epsilon": 0},
            "budget.epsilon: input should be greater than 0, got 0",
        ),
        ({"budget.epsilon": -1}, "greater than 0, got -1"),
        ({"budget.epsilon": float("inf")}, "finite number, got inf"),
        ({"budget.epsilon": float("nan")}, "budget.epsilon: input should be"),
        ({"budget.delta": 1}, "budget.delta: input should be less than 1, got 1"),
        ({"budget.delta": 0}, "budget.delta: input should be greater than 0, got 0"),
        ({"budget.delta": "1e-5x"}, "budget.delta: .*number.*got '1e-5x'"),
        ({"budget.unit": MISSING}, "budget.unit: required key is missing"),
        ({"budget.relation": MISSING}, "budget.relation: required key is missing"),
        (
            {"budget.unit": "volume"},
            "budget.unit: .*'sample' or 'subject', got 'volume'",
        ),
        ({"budget.n_colluding": 4}, "n_colluding: must be below .* sites 4, got 4"),
        ({"budget.n_colluding": 9}, "n_colluding: must be below .* sites 4, got 9"),
        ({"budget.n_colluding": -1}, "budget.n_colluding: .*got -1"),
        ({"budget.pca_share": 1.0}, "budget.pca_share: .*less than 1, got 1.0"),
        ({"sites": []}, "sites: a federation needs at least 2, got 0"),
        ({"sites": ["a.yaml"]}, "sites: a federation needs at least 2, got 1"),
        ({"sites": "a.yaml"}, "sites: .*list, got 'a.yaml'"),
        ({"n_components": 0}, "n_components: .*got 0"),
        ({"n_components": 2.5}, "n_components: .*got 2.5"),
        ({"arm": "capes"}, "arm: .*'cape'.*got 'capes'"),
        ({"study": "a b"}, "study: .*got 'a b'"),
        ({"study": ""}, "study: .*got ''"),
        ({"pca.norm_bound": 0}, "pca.norm_bound: .*got 0"),
        ({"ica": MISSING}, "ica: required key is missing"),
        ({"ica": None}, "ica: .*got None"),
        ({"ica.sub_gaussian": "some"}, "ica.sub_gaussian: must be .*, got 'some'"),
        ({"ica.sub_gaussian": -1}, "ica.sub_gaussian: must be .*, got -1"),
        ({"ica.sub_gaussian": True}, "ica.sub_gaussian: must be .*, got True"),
        (
            {"ica.sub_gaussian": 1, "ica.update": "gradient"},
            "ica: sub_gaussian needs update orthogonal, got gradient",
        ),
        (
            {"ica.sub_gaussian": "measured", "ica.n_rounds": 2},
            "ica: n_rounds must be at least 3 .*, got 2",
        ),
        ({"space.grid_size": 1}, "space.grid_size: .*got 1"),
        ({"space.basis": "atlas"}, "space: basis_file: must be given with basis atlas"),
        (
            {"space.basis_file": "a.nii"},
            "space: basis_file: must be given with basis atlas",
        ),
        ({"cleaning.max_constant_voxels": 1}, "max_constant_voxels: .*got 1"),
        ({"data": {"kind": "simtv"}}, "data.kind: .*simtb, painted, got 'simtv'"),
        ({"data": {**DATA, "alpha": [0.5, 0.2]}}, r"data.alpha: must be \[low"),
        ({"data": {**DATA, "n_volumes": 1}}, "data.n_volumes: .*got 1"),
    ],
)
def test_a_wrong_value_of_a_study_is_one_line(tmp_path, changes, line):
    (found,) = errors(study, tmp_path, changes)
    assert re.search(line, found), found


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"seed": 3},
            "seed: must be null for private data, whose noise it would make known",
        ),
        ({"name": "a/b"}, "name: .*got 'a/b'"),
        ({"name": ".."}, r"name: .*got '\.\.'"),
        ({"epsilon": MISSING}, "epsilon: required key is missing"),
        ({"data": MISSING}, "data: required key is missing"),
        ({"data": "open"}, "data: .*'private', 'simulated' or 'public', got 'open'"),
        (
            {"second_place": "private/a/ledger/there", "ledger": "private/a/ledger"},
            "second_place: must lie outside the ledger's folder",
        ),
        ({"epsilon": 0}, "epsilon: .*greater than 0, got 0"),
        ({"delta": 1.5}, "delta: .*less than 1, got 1.5"),
        ({"min_colluding": -1}, "min_colluding: .*got -1"),
        ({"repetition_time": 0}, "repetition_time: .*got 0"),
    ],
)
def test_a_wrong_value_of_a_site_file_is_one_line(tmp_path, changes, line):
    (found,) = errors(site, tmp_path, changes)
    assert re.search(line, found), found


def test_all_errors_of_a_file_are_shown_at_once(tmp_path):
    wrong = {"budget.epsilon": -1, "ica.n_round": 2, "arm": "x", "space.mask": MISSING}
    lines = errors(study, tmp_path, {**wrong, "data": {**DATA, "seeds": 1}})
    assert sorted(line.split(":")[0] for line in lines) == [
        "arm",
        "budget.epsilon",
        "data.seeds",
        "ica.n_round",
        "space.mask",
    ]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("name: north\n".encode("utf-16"), "must be text in UTF-8; save it so"),
        ("name: J\u00f6rg\n".encode("latin-1"), "must be text in UTF-8; save it so"),
        (
            "name: a\nwithout:\u00a0[3]\n".encode(),
            "blanks must be plain ones, some are",
        ),
        (b"name: a\npeople: [3]\n", "people: must be the path of a file"),
    ],
)
def test_a_file_in_another_code_says_which(tmp_path, content, line):
    (tmp_path / "a.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=line):
        load.load_site(tmp_path / "a.yaml")


def test_the_mark_of_utf8_is_no_content(tmp_path):
    text = "name: north\nimages: d\ndata: public\nepsilon: 1\ndelta: 1.0e-5\n"
    text += "unit: subject\nwithout: [03\u200b]\n"
    (tmp_path / "a.yaml").write_bytes(text.encode("utf-8-sig"))
    assert load.load_site(tmp_path / "a.yaml").without == ("03",)


def test_the_same_of_several_people_names_them_whole():
    def refuse(label: str) -> None:
        raise ConfigError(f"d/sub-{label}/func/sub-{label}_bold.nii: is empty")

    labels = ("CMU_1", "CMU_2", "1-2")
    with pytest.raises(ConfigError, match=r"of 2 more: sub-CMU_2, sub-1-2$"):
        check_all(partial(refuse, label) for label in labels)


@pytest.mark.parametrize("text", ["1e-5", "'1e-5'", "1.0e-5", "0.00001"])
def test_small_numbers_as_people_write_them(tmp_path, text):
    path = write(tmp_path, changed(STUDY, {"budget.delta": MISSING}))
    content = path.read_text().replace("budget:\n", f"budget:\n  delta: {text}\n")
    path.write_text(content)
    assert load.load_study(path).budget.delta == 1e-5


ELSEWHERE = ["/etc/passwd", "/etc/a.yaml", "../a.yaml", "b/../../a.yaml", "b/..", ".."]


@pytest.mark.parametrize("path", [*ELSEWHERE, "a.txt", "a", ".yaml", "", "a\0.yaml"])
def test_a_study_names_no_site_file_elsewhere(tmp_path, path):
    (found,) = errors(study, tmp_path, {"sites": ["a.yaml", path, "b.yml", "c.yaml"]})
    said = "sites.1: must be a .yaml file inside this folder, without / before it or .."
    assert found.startswith(said) and found.endswith(f"got {path!r}")


# Between study and sites


def sites_of(folder: Path, study_changes: dict, *site_changes: dict) -> dict:
    paths = []
    for i, changes in enumerate(site_changes):
        content = changed(SITE, {"name": f"s{i}", "images": f"data/s{i}", **changes})
        paths.append(write(folder, content, f"s{i}.yaml").name)
    with contextlib.chdir(folder):
        return site_files.load_sites(study(folder, sites=paths, **study_changes))


def test_sites_are_loaded_by_name_in_order(tmp_path):
    assert list(sites_of(tmp_path, {}, {"name": "z"}, {"name": "a"})) == ["z", "a"]


BY_VOLUME = {"budget.unit": "sample"}


@pytest.mark.parametrize(
    ("of_study", "of_site", "message"),
    [
        ({}, {"name": "s0"}, "name: must be unique in the study, got 's0' again"),
        ({"score.reference": True}, {}, "data: runs without privacy need"),
        ({"arm": "non-private"}, {}, "data: runs without privacy need"),
        ({"arm": "pooled"}, {}, "data: runs without privacy need"),
        ({"space.mask": "computed"}, {}, "data: a mask computed from private data"),
        (
            BY_VOLUME | {"cleaning.confounds": "simple"},
            {},
            "cleaning.confounds: must not leave",
        ),
        (BY_VOLUME | {"cleaning.scrub": {}}, {}, "cleaning.scrub: must not leave"),
        (BY_VOLUME | {"cleaning.exclude": {}}, {}, "cleaning.exclude: must not leave"),
        ({}, {"seed": 1}, "seed: must be null for private data"),
    ],
)
def test_rules_between_study_and_site_file(tmp_path, of_study, of_site, message):
    public = {"data": "public"}
    with pytest.raises(ConfigError, match=f"s1.yaml: .*{message}"):
        sites_of(tmp_path, of_study, public, of_site)
    if "name" not in of_site:
        assert sites_of(tmp_path, of_study, public, {**of_site, **public})


def test_a_missing_site_file_is_named(tmp_path):
    loaded = study(tmp_path, sites=["no-1.yaml", "no-2.yaml"])
    with pytest.raises(ConfigError, match=r"no-1\.yaml: file not found"):
        site_files.load_sites(loaded)


@pytest.mark.parametrize(("n_sites", "expected"), [(2, 1), (3, 1), (4, 1), (10, 3)])
def test_default_of_colluding_sites(tmp_path, n_sites, expected):
    sites = [f"{i}.yaml" for i in range(n_sites)]
    loaded = study(tmp_path, sites=sites, aggregator="independent")
    assert loaded.n_colluding == loaded.promise.n_colluding == expected
    # An aggregator that does not say where it sits counts as one more.
    assert study(tmp_path, sites=sites).n_colluding == min(
        max(1, -(-n_sites // 3)), n_sites - 1
    )


# Identity: what makes a release another one


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, True),
        ({"score.reference": True}, True),
        ({"pca.n_iterations": 5}, True),  # of power iteration alone
        ({"data": dict(DATA)}, True),
        ({"budget.epsilon": 3.0}, False),
        ({"budget.unit": "sample"}, False),
        ({"ica.clip": 3.0}, False),
        ({"pca.center": True}, False),
        ({"pca.method": "power"}, False),
        ({"cleaning.detrend": False}, False),
        ({"study": "other"}, False),
    ],
)
def test_identity_changes_with_what_changes_releases(tmp_path, changes, same):
    before = study(tmp_path).identity
    assert (study(tmp_path, **changes).identity == before) is same


# The files that come with the project


@pytest.mark.parametrize("path", STUDIES, ids=lambda p: p.parent.name)
def test_shipped_studies_load_with_their_sites(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    loaded = load.load_study(path)
    assert len(site_files.load_sites(loaded)) == len(loaded.sites)
    assert loaded.study == path.parent.name or path.stem == "config"


@pytest.mark.parametrize("path", SITES, ids=lambda p: p.stem)
def test_shipped_site_files_load(path):
    loaded = load.load_site(path)
    assert loaded.name == path.stem
    assert loaded.data != "private"
    assert loaded.ledger == Path("private") / loaded.name / "ledger"


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
def test_every_key_has_an_explanation(model):
    for name, field in model.model_fields.items():
        inner = field.annotation
        nested = isinstance(inner, type) and issubclass(inner, BaseModel)
        named = name in ("kind", "data") or nested
        assert key_texts(model).get(name) or named, f"{model.__name__}.{name}"
        assert model.__doc__


def _all_keys(model: type[BaseModel], content: dict, where: str) -> list[str]:
    """Keys of a model that a file does not show."""
    absent = [f"{where}{k}" for k in model.model_fields if k not in content]
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            absent += _all_keys(inner, content.get(name) or {}, f"{where}{name}.")
    return absent


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("noise", "accept: must be a list, got 'noise'"),
        (["noise"], "accept.0: must be a block of keys and values, got 'noise'"),
        (
            [{"rule": "delta", "reason": "because"}],
            "accept.0.rule: input should be 'noise', 'epsilon', 'weak', 'unit', "
            "'bounds' or 'gain'",
        ),
        ([{"rule": "noise"}], "accept.0.reason: required key is missing"),
    ],
)
def test_what_is_accepted_has_a_rule_and_a_reason(tmp_path, value, said):
    with pytest.raises(ConfigError) as error:
        study(tmp_path, accept=value)
    assert said in str(error.value)


def test_every_key_stands_in_the_demo_study():
    content = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    assert not _all_keys(ComponentsConfig, content, "")
    assert not _all_keys(components.Simulation, content["data"], "data.")


@pytest.mark.parametrize(
    "path", [p for p in SITES if p.stem.startswith("demo")], ids=lambda p: p.stem
)
def test_every_key_stands_in_the_demo_site_files(path):
    shared = yaml.safe_load(path.with_name("common.yaml").read_text())
    own = yaml.safe_load(path.read_text())
    assert not own.keys() & shared.keys()
    assert not _all_keys(SiteConfig, {**shared, **own}, "")


@pytest.mark.parametrize(
    "key",
    ["mask", "basis", "epsilon", "n_subjects", *components.IcaOptions.model_fields],
)
def test_the_demo_study_explains_keys_as_the_models_do(key):
    text = (ROOT / "config/config.yaml").read_text()
    plain = " ".join(re.sub(r"\n\s*# ?", " ", text).split())
    descriptions = [
        key_texts(m)[key]
        for m in MODELS
        if key in m.model_fields and m is not SiteConfig
    ]
    assert descriptions
    assert all(" ".join(text.split()) in plain for text in descriptions)


# What site files of a folder share


def site_files_of(folder: Path, common: dict, own: dict) -> Path:
    (folder / "common.yaml").write_text(yaml.safe_dump(common))
    path = folder / "a.yaml"
    path.write_text(yaml.safe_dump(own))
    return path


SHARED = {"epsilon": 2.0, "delta": 1e-5, "unit": "subject", "min_colluding": 1}
ITS_OWN = {"name": "a", "images": "i", "data": "public", "ledger": "l"}


def test_what_site_files_share_counts_where_they_say_nothing(tmp_path):
    path = site_files_of(tmp_path, SHARED, {**ITS_OWN, "epsilon": 1.0})
    site = load.load_site(path)
    assert (site.epsilon, site.min_colluding, site.unit) == (1.0, 1, "subject")


@pytest.mark.parametrize("key", sorted(load.OWN))
def test_what_a_site_must_say_itself_is_not_shared(tmp_path, key):
    value = {"seed": 1, "data": "simulated"}.get(key, "x")
    path = site_files_of(tmp_path, {**SHARED, key: value}, ITS_OWN)
    with pytest.raises(ConfigError, match=rf"common.yaml: {key}: must stand in each"):
        load.load_site(path)


def test_a_mistake_is_told_in_the_file_that_has_it(tmp_path):
    path = site_files_of(tmp_path, {**SHARED, "epsilon": -1}, {**ITS_OWN, "tusk": 1})
    with pytest.raises(ConfigError) as told:
        load.load_site(path)
    lines = str(told.value).splitlines()
    assert any(re.search(r"common.yaml: epsilon: .*greater than 0", s) for s in lines)
    assert any(re.search(r"a.yaml: tusk: unknown key; .*'task'", s) for s in lines)


def test_over_a_network_a_sites_own_file_says_all(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = site_files_of(tmp_path, SHARED, {**ITS_OWN, **SHARED})
    loaded = study(tmp_path, sites=[path.name, "b.yaml"], federation="nvflare")
    with pytest.raises(ConfigError, match="own file says all its rules"):
        site_files.load_sites(loaded)


def test_an_aggregator_has_no_sites_file(tmp_path, monkeypatch):
    """Not even where a folder above has files of their names."""
    inner = tmp_path / "aggregator" / "config"
    inner.mkdir(parents=True)
    site_files_of(tmp_path, {}, {**ITS_OWN, **SHARED})
    monkeypatch.chdir(inner.parent)
    with pytest.raises(ConfigError, match=f"first cd {tmp_path}"):
        study(inner, sites=["a.yaml", "a.yaml"])
    names = ["a.yaml", "b.yaml"]
    (tmp_path / "b.yaml").write_text((tmp_path / "a.yaml").read_text())
    loaded = study(inner, sites=names, federation="nvflare")
    assert loaded.site_names == ("a", "b")


# What has moved


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("config/linked.yaml", "config/linked/study.yaml"),
        ("config/sites/demo-1.yaml", "config/demo/sites/demo-1.yaml"),
        ("config/figures/smoke.yaml", "papers/grids/smoke.yaml"),
    ],
)
def test_files_that_moved_are_named(old, new, monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(ConfigError, match=f"{old}: file not found; it is now {new}"):
        load.load_study(old)


def test_a_key_that_is_no_more_says_what_is_there(tmp_path):
    with pytest.raises(ConfigError, match=r"ica.update: 'gradient-as-printed' is no"):
        study(tmp_path, **{"ica.update": "gradient-as-printed"})


# Identities

IDENTITIES = {
    "contrast": "b9b5909fa800070f",
    "demo": "3a3724556cac772e",
    "demo_prior": "e2fcf5721db2d3b0",
    "abide": "b7fba20349b10fa0",
    "abide_chain": "35cdd8a299d00aa5",  # its table of means has a path
    "abide_mixture": "ad846a5d04182058",
    "eegfmri": "410e99cfdee791dd",
    "erp": "cb2b05f40d8723b8",
    "gift": "4f6dc27e49e685a1",
    "linked": "0b63559d452d1920",
    "linked_chain": "bdcc374cee05e976",
    "mixture": "9d1dd9862b6964d5",
    "network": "40f2363d0b23aa6e",
    "papers_chain": "84d5bd611dbceecf",
    "regression": "e7a1dc161a664437",
    "topics": "f1cbaddeb138e3d3",
    "vbm": "8a5ccf3d0f00c5db",
    "vbm_chain": "684c7873262b0ec2",
}


def test_identities_of_the_example_studies_stay(monkeypatch):
    """Ledgers name releases by these: a change would make interrupted runs others."""
    monkeypatch.chdir(ROOT)
    found = {}
    for path in STUDIES:
        loaded = load.load_study(path)
        found[loaded.study] = loaded.identity.removeprefix(f"{loaded.study}:")
    assert found == IDENTITIES


def test_a_default_that_is_written_down_is_the_same_study(tmp_path):
    plain = study(tmp_path)
    for key, value in {
        "noise": "rounded",
        "space.grid_size": 2,
        "cleaning.confounds": [],
        "ica.n_rounds": 15,
        "budget.site_epsilon": {},
    }.items():
        assert study(tmp_path, **{key: value}).identity == plain.identity, key
    for key, value in {"noise": "exact", "ica.n_rounds": 16, "pca.clip": 0.9}.items():
        assert study(tmp_path, **{key: value}).identity != plain.identity, key


@pytest.mark.parametrize("kind", load.every_kind(), ids=lambda kind: kind.kind)
def test_every_key_says_which_steps_it_changes(kind):
    sections = {name: field.annotation for name, field in kind.model_fields.items()}
    assert set(sections) <= set(kind.uses)
    steps = {"make_data", "validate", "prepare", "plan", "maps", "score", "report"}
    steps |= {"private", "releases", "identity", *kind.release_steps}
    steps |= {f"reference_{step}" for step in kind.release_steps}
    assert set(" ".join(kind.uses.values()).split()) <= steps
    for key in kind.uses:
        section, _, name = key.partition(".")
        assert section in sections
        assert not name or f"{name}" in _keys_of(sections[section]), key


def _keys_of(annotation: object) -> set[str]:
    """Keys of a section, whichever of its forms has them."""
    forms = getattr(annotation, "__args__", (annotation,))
    return {k for form in forms for k in getattr(form, "model_fields", ())}
