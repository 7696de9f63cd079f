"""Pictures of the gallery: parts of the reports of simulated studies, good and bad.

    python docs/gallery.py [SCENE...]     # needs Chromium; a quarter of an hour for all

Each scene runs a study in a folder of its own, as a user would, and photographs a part
of its page. What it changes of an example study is all that is wrong with it.
"""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import yaml
from PIL import Image, ImageChops

from capeneuro.studies.ask import stem_of

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "figures"
BIN = Path(sys.executable).parent
WIDTH, HEIGHT = 900, 1600
FLAGS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
FLAGS += "--disable-background-networking --disable-component-update "
FLAGS += f"--disable-sync --hide-scrollbars --window-size={WIDTH},{HEIGHT}"
# Leaves of a page's main part what is named, in that order.
KEEP = """<style>nav {{ display: none }} main {{ padding: 8px !important }}
section {{ border: 0 !important; margin: 0 !important }}</style>
<script>addEventListener("load", () => {{
  const kept = {}.map(s => document.querySelector(s)).filter(e => e);
  document.querySelector("main").replaceChildren(...kept); }})</script>"""


def edited(path: Path, **changes: Any) -> None:
    """Change keys of a YAML file; two underscores stand for a point."""
    content = yaml.safe_load(path.read_text())
    for name, value in changes.items():
        *parents, key = name.split("__")
        inner = content
        for parent in parents:
            inner = inner[parent]
        inner[key] = value
    path.write_text(yaml.safe_dump(content))


def sh(folder: Path, *command: str, status: int = 0) -> str:
    """Run a command of this environment; return what it said."""
    about = {"cwd": folder, "capture_output": True, "text": True, "check": False}
    done = subprocess.run([str(BIN / command[0]), *command[1:]], **about)
    if done.returncode != status:
        raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def run(folder: Path, study: str = "config/config.yaml") -> None:
    """Run a study to its report."""
    sh(folder, "snakemake", "--quiet", "--cores", "2", "--configfile", study)


def photograph(page: Path, kept: list[str], name: str) -> None:
    """Keep some elements of a page, by CSS, as a small picture."""
    text = page.read_text()
    with tempfile.TemporaryDirectory() as profile:
        shown, shot = Path(profile, "shown.html"), Path(profile, "shot.png")
        shown.write_text(text + KEEP.format(json.dumps(kept)))
        own = [f"--user-data-dir={profile}/profile", f"--screenshot={shot}"]
        browser = shutil.which("chromium") or "chromium-browser"
        command = [browser, *FLAGS.split(), *own, shown.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        image = Image.open(shot).convert("RGB")
    blank = Image.new("RGB", image.size, image.getpixel((WIDTH - 1, HEIGHT - 1)))
    right, bottom = ImageChops.difference(image, blank).getbbox()[2:]
    image = image.crop((0, 0, min(right + 16, WIDTH), min(bottom + 16, HEIGHT)))
    path = OUT / f"gallery_{name}.png"
    image.quantize(64).save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB, {image.size}", flush=True)


def told(folder: Path) -> None:
    """The demo study as it is."""
    run(folder)
    parts = ["#results p", "#results .scroll", "#results .maps figure"]
    photograph(folder / "results/demo/report.html", parts, "told")


def drowned(folder: Path) -> None:
    """The same study of three people a site, each promised epsilon 1."""
    study = folder / "config/config.yaml"
    edited(study, data__n_subjects=3, data__n_volumes=120, budget__unit="subject")
    edited(study, budget__epsilon=1.0, pca__clip=0.32, ica__clip=0.1)
    edited(study, ica__independence="spatial")
    for site in folder.glob("config/demo/sites/demo-*.yaml"):
        edited(site, unit="subject")
    sh(folder, "python", "-m", "sim", "config/config.yaml")
    print(sh(folder, "capeneuro", "plan", "config/config.yaml", status=3))
    edited(study, accept=[{"rule": "noise", "reason": "to show what comes of it"}])
    run(folder)
    parts = ["#summary", "#results p", "#results .scroll"]
    photograph(folder / "results/demo/report.html", parts, "drowned")


def noisy(folder: Path) -> None:
    """One person in strong noise, one who was cut, and a bound that is too small."""
    study = folder / "config/config.yaml"
    edited(study, data__n_subjects=6, cleaning__max_constant_voxels=0.5)
    edited(study, pca__norm_bound=5.0)
    sh(folder, "python", "-m", "sim", "config/config.yaml")
    runs = sorted((folder / "data/demo/demo-1").rglob("*_bold.nii.gz"))
    rng = np.random.default_rng(0)
    for path, spoil in (runs[2], "noise"), (runs[4], "cut"):
        image = nib.load(path)
        values = image.get_fdata()
        if spoil == "noise":
            inside = values.std(axis=3) > 0
            deviation = 4 * np.median(values[inside].std(axis=1))
            values[inside] += rng.normal(0, deviation, values[inside].shape)
        else:
            top = values[:, :, values.shape[2] * 2 // 3 :]
            top[...] = top.mean(axis=3, keepdims=True)
        nib.save(nib.Nifti1Image(values.astype(np.float32), image.affine), path)
    print(sh(folder, "capeneuro", "validate", "config/config.yaml"))
    print(sh(folder, "capeneuro", "prepare", "config/config.yaml", "--site", "demo-1"))
    page = folder / "private/demo-1/demo/qc.html"
    photograph(page, ["main .scroll"], "noisy")
    photograph(page, ["main figure"], "bound")


def prior(folder: Path) -> None:
    """Four hundred people around a prior that has one network elsewhere."""
    study = folder / "config/demo_prior/study.yaml"
    fewer = study.read_text().replace("n_subjects: 250", "n_subjects: 100")
    study.write_text(fewer)  # run.sh cuts the file by its lines
    subprocess.run(["config/demo_prior/run.sh", "moved"], cwd=folder, check=True)
    page = folder / "results/demo_prior_moved/report.html"
    changed = "figure:has([alt*='with its public map'])"
    photograph(page, ["#summary", changed], "prior")


def contrast(folder: Path) -> None:
    """Patients and controls: which effects stand above noise and sampling."""
    run(folder, "config/contrast/study.yaml")
    page = folder / "results/contrast/report.html"
    photograph(page, ["#summary", "#results .scroll"], "contrast")


def chain(folder: Path) -> None:
    """The chain of the papers: pairs beside those of the run without privacy."""
    run(folder, "config/papers_chain/study.yaml")
    page = folder / "results/papers_chain/report.html"
    photograph(page, ["#summary", "#beside-1", "#beside-1 + .scroll"], "chain")


def questions(folder: Path) -> None:
    """Ten questions to one study, each with the first picture of its answer."""
    shutil.copytree(ROOT / "examples/ask", folder / "examples/ask")
    script = [str(folder / "examples/ask/run.sh")]
    subprocess.run(
        script, check=True, env={"BIN": str(BIN), "PATH": os.environ["PATH"]}
    )
    answers = folder / "examples/ask/work/results/doses/answers"
    text = (folder / "examples/ask/questions.txt").read_text()
    for n, question in enumerate(text.splitlines(), 1):
        keep_picture(answers / f"{stem_of(question)}.html", "", f"questions/{n}.svg")


def networks(folder: Path) -> None:
    """A study of named networks of 400 people, with a public covariance of 100."""
    template = "data/template.nii.gz"
    for name, people, sites, seed in (("data", 400, 5, 1), ("open", 100, 2, 9)):
        sizes = [f"--people={people}", f"--sites={sites}", f"--seed={seed}"]
        sh(folder, "python", "-m", "sim.networks", name, *sizes)
        kind = "simulated" if name == "data" else "public"
        sources = sorted(str(path) for path in folder.glob(f"{name}/site-*"))
        command = ["init", f"study-{name}", "--kind", "networks", "--data", kind]
        sh(folder, "capeneuro", *command, "--template", template, "--from", *sources)
        study = folder / f"study-{name}/config/config.yaml"
        edited(study, rows__features__domains__column="domain")
        edited(study, rows__features__domains__families=None)
    table = str(folder / "study-data/config/covariance.tsv")
    prior = ["capeneuro", "prior", "config/config.yaml", "--out", table]
    sh(folder / "study-open", *prior, "--source", "people of another seed")
    edited(folder / "study-data/config/config.yaml", study="networks", arm="cape")
    study = folder / "study-data/config/config.yaml"
    edited(study, contrast__covariance="config/covariance.tsv")
    for site in folder.glob("study-data/config/sites/*.yaml"):
        edited(site, seed=1)
    print(sh(folder / "study-data", "capeneuro", "run", "config/config.yaml"))
    page = folder / "study-data/results/networks/report.html"
    keep_picture(page, "effect over the deviation", "networks_effects.svg")
    keep_picture(page, "mean connectivity", "networks_means.svg")


def keep_picture(page: Path, words: str, name: str) -> None:
    """Keep the first vector picture of a page whose description has some words."""
    for alt, data in re.findall(
        r'<img alt="([^"]*)" src="data:image/svg[^,]*,([A-Za-z0-9+/=]+)',
        page.read_text(),
    ):
        if words in alt:
            path = OUT / name
            path.write_bytes(base64.b64decode(data))
            print(f"{name}: {path.stat().st_size / 1000:.0f} kB", flush=True)
            return
    raise ValueError(f"{page}: no picture of {words!r}")


SCENES: Mapping[str, Callable[[Path], None]] = {
    scene.__name__: scene
    for scene in (told, drowned, noisy, prior, contrast, chain, questions, networks)
}


def main(names: list[str]) -> None:
    """Run scenes, each in a folder that is like a checkout."""
    for name in names or SCENES:
        with tempfile.TemporaryDirectory() as folder:
            here = Path(folder)
            shutil.copytree(ROOT / "config", here / "config")
            for linked in ("workflow", "sim"):
                (here / linked).symlink_to(ROOT / linked)
            (here / ".venv").symlink_to(BIN.parent)
            SCENES[name](here)


if __name__ == "__main__":
    main(sys.argv[1:])
