"""A site opens with the rules of its own file, and the promise of the study's."""

from pathlib import Path
from typing import Any

import yaml
from tiny_study import STUDY, edit, run_steps

from capeneuro.config.load import load_study
from capeneuro.federation.site import Site
from capeneuro.studies.sites import load_sites, open_site

# A key of the site's file, its value, and where the open site has it.
OF_SITE = {
    "data": ("public", lambda site: site._limits.kind),
    "min_noise_multiplier": (0.25, lambda site: site._limits.min_noise_multiplier),
    "min_colluding": (2, lambda site: site._limits.min_colluding),
    "epsilon": (7.0, lambda site: site._ledger.ceiling.epsilon),
    "delta": (3e-6, lambda site: site._ledger.ceiling.delta),
    "unit": ("subject", lambda site: site._ledger.ceiling.unit),
    "cohort": ("spring", lambda site: site._ledger.cohort),
    "seed": (8, lambda site: site._seed),
}
OF_STUDY = {
    "budget.epsilon": (4.0, lambda site: site._limits.promise.epsilon),
    "budget.delta": (2e-5, lambda site: site._limits.promise.delta),
    "budget.unit": ("sample", lambda site: site._limits.study["unit"]),
    "budget.relation": ("zero-out", lambda site: site._limits.study["relation"]),
    "arm": ("conventional", lambda site: site._limits.study["arm"]),
    "noise": ("exact", lambda site: site._limits.study["noise"]),
    "budget.n_colluding": (1, lambda site: site._limits.study["n_colluding"]),
    "expected.longest": (40, lambda site: site._longest),
}


def opened() -> Site:
    study = load_study(Path(STUDY))
    return open_site(study, load_sites(study), "site-0")


def keep(path: str, key: str, value: Any, has: Any) -> None:
    """A value that is changed in a file is that of the site; then it is as before."""
    before = Path(path).read_text()
    assert has(opened()) != value
    edit(path, key, value)
    assert has(opened()) == value, key
    Path(path).write_text(before)


def test_a_site_has_the_rules_of_its_own_file_and_of_the_study(tiny):
    run_steps("validate", "prepare")
    edit(STUDY, "budget.n_colluding", 2)
    for path, keys in (("site-0.yaml", OF_SITE), (STUDY, OF_STUDY)):
        for key, (value, has) in keys.items():
            keep(path, key, value, has)


def test_a_site_has_the_features_that_were_prepared(tiny):
    run_steps("validate", "prepare")
    site, content = opened(), yaml.safe_load(Path("site-0.yaml").read_text())
    assert site._n_samples == {"sub-00": 12, "sub-01": 12}
    assert {x.shape[1] for x in site._subjects.values()} == {12}
    assert str(site._ledger.folder) == content["ledger"]
