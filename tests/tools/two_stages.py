"""A small study of two stages: components, then a contrast of measures of them."""

import contextlib
import shutil
from pathlib import Path

import parties
import yaml
from parties import SITES, STUDY
from tiny_study import ACCEPT, command, edit, study_content, write_study

from capeneuro.data import files

OWN = ("space", "cleaning", "n_components", "pca", "score")
FEATURES = {"kind": "components", "of": "components"}
CONTRAST = {
    "space": None,
    "rows": {"features": FEATURES},
    "contrast": {
        "covariates": {"age": {"mean": 40, "deviation": 10}},
    },
}


def write_parties(root: Path, federation: str = "nvflare") -> None:
    """All of the study in ``root/together``, and each party's part beside it."""
    together = root / "together"
    together.mkdir(parents=True)
    with contextlib.chdir(together):
        write_study(together, len(SITES))
        content = study_content(len(SITES))
        first = {key: content.pop(key) for key in OWN}
        del content["ica"], first["score"]
        first["ica"] = {"independence": "spatial"}
        content |= {"stages": {"components": first, "contrast": CONTRAST}}
        content |= {"federation": federation, "accept": ACCEPT}
        for own in content["stages"].values():
            own["expected"] = {"people": 6, "volumes": 12}
        Path(STUDY).write_text(yaml.safe_dump(content))
        for i, name in enumerate(SITES):
            rows = [[f"sub-{i}{k}", str(30 + 10 * k + i)] for k in range(2)]
            table = Path(f"data/{name}/participants.tsv")
            files.write_table(table, ["participant_id", "age"], rows)
            edit(f"{name}.yaml", "seed", 5)
            edit(f"{name}.yaml", "unit", "subject")
        assert command("validate", STUDY) == 0
        for name in SITES:
            about = "--stage", "components", "--site", name
            assert command("prepare", STUDY, *about) == 0
            own = root / name
            own.mkdir()
            shutil.copy(STUDY, own)
            shutil.copy(f"{name}.yaml", own)
            shutil.copytree(f"private/{name}", own / "private" / name)
            shutil.copytree(f"data/{name}", own / "data" / name)
            shutil.copy("data/mask.nii.gz", own / "data")
        (root / "aggregator/data").mkdir(parents=True)
        shutil.copy(STUDY, root / "aggregator")
        shutil.copy("data/mask.nii.gz", root / "aggregator/data")
        parties.join_all(root)
