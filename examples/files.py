"""Files to a report: a small study of simulated images, and its results by name."""

import shutil
from pathlib import Path

import yaml

import capeneuro as cn

root = Path(__file__).resolve().parent.parent
folder = Path("results/examples/files")
shutil.rmtree(folder, ignore_errors=True)
(folder / "sites").mkdir(parents=True)
study = yaml.safe_load((root / "config/config.yaml").read_text())
names = ["north", "south"]
study |= {"study": "example", "n_components": 4}
study["sites"] = [str(folder / f"sites/{name}.yaml") for name in names]
study["space"]["mask"] = str(folder / "data/mask.nii.gz")
study["score"]["truth"] = str(folder / "data/truth/desc-truth_components.nii.gz")
study["data"] |= {"n_subjects": 20, "n_volumes": 250, "voxel_size": 12.0}
study["budget"] |= {"epsilon": 8.0}
for name in names:
    site = {"name": name, "images": str(folder / f"data/{name}"), "data": "simulated"}
    site |= {"epsilon": 10.0, "delta": 1e-5, "unit": "sample", "min_colluding": 0}
    site |= {"ledger": str(folder / f"ledgers/{name}")}
    (folder / f"sites/{name}.yaml").write_text(yaml.safe_dump(site))
path = str(folder / "study.yaml")
Path(path).write_text(yaml.safe_dump(study))

# What `snakemake --cores 2 --configfile ...` runs, in this process.
found = cn.load(path).run()
print(found)
print(found.table)
print(found.scores)
print("promised:", found.promise, "report:", found.report)
