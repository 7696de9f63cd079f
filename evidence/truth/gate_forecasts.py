"""What is foretold of studies beside what they give: the gate and the verdicts.

    python -m evidence.truth.gate_forecasts FOLDER

Some two dozen studies of all kinds, good, hopeless and in between, simulated and of
real people (ABIDE, VBM; left out where `../shared/data` is not there). Each is planned
as the workflow plans it; whatever that says it is run, accepted where it has to be, and
its verdicts are counted. A study that is foretold to be drowned is stopped: it should
find nothing. Twelve minutes on two cores.
"""

import argparse
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from capeneuro import cli
from capeneuro.config import load
from capeneuro.data import files
from capeneuro.studies import registry
from capeneuro.studies.sites import load_sites
from sim.__main__ import main as make_data

ROOT = Path(__file__).resolve().parents[2]
REAL = ("abide", "vbm")
SUBJECT = {"budget.unit": "subject"}
# Example study, and changes to it.
CASES: list[tuple[str, dict[str, Any]]] = [
    ("demo", {}),
    ("demo", {"budget.epsilon": 0.5}),
    ("demo", {"budget.epsilon": 0.1}),
    ("demo", {"data.n_subjects": 4}),
    ("demo", {"data.n_subjects": 1, **SUBJECT}),
    ("demo", {"budget.epsilon": 400.0, **SUBJECT}),
    ("demo", {"ica.independence": "spatial"}),
    ("demo", {"ica.independence": "spatial", "budget.epsilon": 0.1}),
    ("abide", {}),
    ("abide", {"budget.epsilon": 0.5}),
    ("abide", {"budget.epsilon": 0.05}),
    ("linked", {}),
    ("linked", {"budget.epsilon": 1.0}),
    ("linked", {"data.n_subjects": 30}),
    ("mixture", {}),
    ("mixture", {"budget.epsilon": 0.3}),
    ("mixture", {"data.n_subjects": 50}),
    ("topics", {}),
    ("topics", {"budget.epsilon": 0.1}),
    ("regression", {}),
    ("regression", {"budget.epsilon": 0.02}),
    ("regression", {"regression.task": "logistic"}),
    ("network", {}),
    ("network", {"budget.epsilon": 0.05}),
    ("vbm", {}),
    ("vbm", {"budget.epsilon": 0.5}),
]
# The score that tells most, the first that a study has.
TELLING = (
    "reference_mean_abs_r",
    "reference_max_abs_error",
    "reference_component_error",
    "reference_prediction_r",
    "people_accuracy",
)


def main() -> None:
    """Run all, and print a row each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="new, for data and results")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of studies")
    given = parser.parse_args()
    folder = given.folder.resolve()
    has_real = (ROOT.parent / "shared/data").is_dir()
    print(f"{'study':58} {'noise':>8}  {'foretold':9} {'above noise':12} score")
    for i, (example, changes) in enumerate(CASES):
        if given.only is not None and i not in given.only:
            continue
        if example not in REAL or has_real:
            print(row(folder, i, example, changes), flush=True)


def row(folder: Path, i: int, example: str, changes: dict[str, Any]) -> str:
    """Plan and run one study; what was foretold and what was found, as a line."""
    # What the data makers read, beside the example.
    read = [k for k in changes if k.startswith("data.") or k.endswith(".task")]
    made = {key: changes[key] for key in read}
    data = folder / "-".join(["data", example, *map(str, made.values())])
    here = folder / f"{i:02}-{example}"
    shutil.copytree(ROOT / "config", here / "config")
    if not (folder / "shared").exists():
        (folder / "shared").symlink_to(ROOT.parent / "shared")
    is_new = not data.exists()
    data.mkdir(exist_ok=True)
    (here / "data").symlink_to(data)
    path = here / f"config/{example}/study.yaml"
    path = path if path.exists() else here / "config/config.yaml"
    study = yaml.safe_load(path.read_text())
    for key, value in changes.items():
        section, name = key.split(".")
        study[section][name] = value
    study["accept"] = [{"rule": "noise", "reason": "a forecast is to be judged"}]
    path.write_text(yaml.safe_dump(study))
    for file in here.glob(f"config/{example}/sites/*.yaml"):
        site = yaml.safe_load(file.read_text())
        ceiling = {"epsilon": 1e4, "unit": study["budget"]["unit"]}
        file.write_text(yaml.safe_dump(site | ceiling))
    with contextlib.chdir(here), contextlib.redirect_stdout(io.StringIO()):
        if is_new and example == "vbm":
            command = [sys.executable, "-m", "sim.vbm"]
            subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": ROOT})
        elif is_new:
            make_data([str(path)])
        run(str(path))
        config = load.load_study(path)
        rows = files.read_table(config.results / "verdicts.tsv")
        ratios = json.loads((config.results / "forecast.json").read_text())["noise"]
        scored = files.read_table(config.results / "scores.tsv")
    scores = {name: (value, known) for name, value, known, _ in scored}
    n_above = sum(word == "above noise" for *_, word in rows)
    worst = max(ratios.values())
    told = "stopped" if worst > 1 else "runs"
    said = ", ".join(f"{key} {value}" for key, value in changes.items()) or "as it is"
    telling = next((name for name in TELLING if name in scores), None)
    score = f"{telling} {' against '.join(scores[telling])}" if telling else ""
    name = f"{config.study}: {said}"
    return f"{name:58} {worst:8.3g}  {told:9} {n_above:3} of {len(rows):<5} {score}"


def run(path: str) -> None:
    """All steps of a study that a report needs, one after the other."""
    study = load.load_study(path)
    sites = load_sites(study)
    kind = registry.of(study)
    for step in kind.steps:
        if step in ("reconstruct", "report"):
            continue
        apart = [["--site", name] for name in sites] if step == "prepare" else [[]]
        for options in apart:
            if step in kind.result_files and study.score.reference:
                done(cli.main([step, path, "--reference"]), step)
            done(cli.main([step, path, *options]), step)


def done(status: int, step: str) -> None:
    """End where a step failed; its message is on the error stream."""
    if status:
        raise SystemExit(f"{os.getcwd()}: {step} ended with status {status}")


if __name__ == "__main__":
    main()
