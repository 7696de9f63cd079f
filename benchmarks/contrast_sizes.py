"""Time and memory of each step of a contrast, by how many outcomes it has.

    python -m benchmarks.contrast_sizes --outcomes 458 3574 22000 60000

Two sites of 60 people with simulated maps, one outcome a voxel, without a public
covariance; every step is the command that a study runs, in a process of its own. Last
come the slopes of processor seconds in outcomes, between the two largest sizes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import nibabel as nib
import numpy as np
import yaml

SITES, PEOPLE = ("north", "south"), 60
STEPS = [
    ["check"],
    ["validate"],
    ["plan"],
    *(["prepare", "--site", site] for site in SITES),
]
STEPS += [["contrast"], ["maps"], ["score"], ["report"]]


def write_study(folder: Path, n_outcomes: int) -> None:
    """Write maps, tables and files of a study with so many voxels."""
    rng = np.random.default_rng(0)
    side = int(np.ceil(n_outcomes ** (1 / 3)))
    inside = np.arange(side**3).reshape(side, side, side) < n_outcomes
    affine, rows = np.diag([-3.0, 3.0, 3.0, 1.0]), []
    nib.Nifti1Image(inside.astype(np.uint8), affine).to_filename(folder / "mask.nii.gz")
    for site in SITES:
        people, ages = ["participant_id\tpatient\tage"], rng.normal(40, 12, PEOPLE)
        for i, age in enumerate(ages):
            name = f"sub-{site}{i:02d}"
            path = folder / site / name / "anat" / f"{name}_label-GM_statmap.nii.gz"
            path.parent.mkdir(parents=True)
            values = np.clip(rng.normal(0.5, 0.15, inside.shape), 0, 1) * inside
            nib.Nifti1Image(values.astype(np.float32), affine).to_filename(path)
            people.append(f"{name}\t{i % 2}\t{age:.4f}")
        (folder / site / "participants.tsv").write_text("\n".join(people) + "\n")
        about = {"Name": site, "BIDSVersion": "1.9.0"}
        description = folder / site / "dataset_description.json"
        description.write_text(json.dumps(about))
        rows.append(f"{site}\t{PEOPLE // 2}\t{PEOPLE // 2}\t{shortened(ages):.6g}")
        own = {"name": site, "data": "simulated", "images": site}
        own |= {"epsilon": 10.0, "delta": 1e-4, "unit": "subject"}
        own["ledger"] = f"ledger-{site}"
        (folder / f"{site}.yaml").write_text(yaml.safe_dump(own))
    head = "site\tpatient=0\tpatient=1\tage"
    (folder / "means.tsv").write_text("\n".join([head, *rows]) + "\n")
    study = {
        "study": "sizes",
        "sites": [f"{site}.yaml" for site in SITES],
        "aggregator": "independent",
        "arm": "cape",
        "budget": {
            "epsilon": 4.0,
            "delta": 1e-4,
            "unit": "subject",
            "relation": "replace-one",
            "n_colluding": 1,
        },
        "space": {"mask": "mask.nii.gz", "basis": "voxels"},
        "rows": {"features": {"kind": "maps", "bounds": [0, 1]}},
        "contrast": {
            "covariates": {
                "patient": {"groups": [0, 1]},
                "age": {"mean": 40, "deviation": 12},
            },
            "primary": "patient",
            "means": "means.tsv",
        },
        "expected": {"people": len(SITES) * PEOPLE},
        "accept": [{"rule": "noise", "reason": "measures time and memory alone"}],
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(study, sort_keys=False))


def shortened(ages: np.ndarray) -> float:
    """Mean of ages, limited to 2.5 public deviations as in the study."""
    return float(np.clip(np.round(ages, 4), 10, 70).mean())


def measured(command: list[str], folder: Path) -> tuple[float, float]:
    """Seconds of a processor and MiB of one step."""
    words = [sys.executable, "-m", "capeneuro.cli", command[0], "study.yaml"]
    environment = {**os.environ, "PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*words, *command[1:]],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)}: {said}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    """Measure, and print a line a step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sizes = [458, 3574, 22000, 60000]
    parser.add_argument("--outcomes", type=int, nargs="+", default=sizes)
    given = parser.parse_args()
    seconds = np.zeros((len(given.outcomes), len(STEPS)))
    print("outcomes", "step", "processor_s", "MiB", sep="\t")
    for row, n_outcomes in zip(seconds, given.outcomes, strict=True):
        with tempfile.TemporaryDirectory() as folder:
            write_study(Path(folder), n_outcomes)
            for k, step in enumerate(STEPS):
                row[k], memory = measured(step, Path(folder))
                print(n_outcomes, step[0], f"{row[k]:.2f}", f"{memory:.0f}", sep="\t")
    print("slope", "step", sep="\t")
    over = np.log(given.outcomes[-1] / given.outcomes[-2])
    for step, before, last in zip(STEPS, seconds[-2], seconds[-1], strict=True):
        print(f"{np.log(last / before) / over:.2f}", step[0], sep="\t")


if __name__ == "__main__":
    main()
