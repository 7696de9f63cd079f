"""Processor time of whole small studies on real images, beside nilearn's CanICA.

GIFT's four people (50 volumes each, 3,095 voxels) and the eight Haxby runs (121
volumes, 129 grey-matter voxels of 25 mm), eight components, without privacy: from
images to maps, tables and report by Snakemake on two cores, against CanICA's fit alone,
which draws and writes nothing. The start of Python, and here of Snakemake, counts.

    python -m benchmarks.small_studies [--data ../shared/data]
"""

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
CANICA = """
import sys
from nilearn.decomposition import CanICA
mask, *images = sys.argv[1:]
CanICA(n_components=8, mask=mask if mask != "-" else None, smoothing_fwhm=None,
       standardize="zscore_sample", random_state=0, n_jobs=2).fit(images)
"""


def spent(*command: str, cwd: Path) -> tuple[float, float]:
    """Seconds and processor seconds of a command and all it started."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    work = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - start, work


def study_in(folder: Path, sites: dict[str, str], mask: str) -> None:
    """Write a study of these sites' images, everything public, without privacy."""
    study = yaml.safe_load(
        (ROOT / "evidence/truth/studies/gift/study.yaml").read_text()
    )
    study |= {"study": "small", "sites": [f"config/{name}.yaml" for name in sites]}
    study["space"]["mask"] = mask
    for name, images in sites.items():
        own = yaml.safe_load(
            (ROOT / "evidence/truth/studies/gift/sites/gift-007.yaml").read_text()
        )
        common = ROOT / "evidence/truth/studies/gift/sites/common.yaml"
        if common.exists():
            own = yaml.safe_load(common.read_text()) | own
        own |= {"name": name, "images": images}
        path = folder / f"config/{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(own))
    (folder / "config/config.yaml").write_text(yaml.safe_dump(study))
    for name in ("workflow", "sim"):
        (folder / name).symlink_to(ROOT / name)


def main() -> None:
    """Run both sets by both programs, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    data = parser.parse_args().data.resolve()
    gift = sorted((data / "fmri4d_gift").glob("sub-*_lowres.nii.gz"))
    haxby = sorted((data / "haxby_25mm").glob("task001_run*/bold_25mm.nii.gz"))
    grey = str(data / "haxby_25mm/mask_gray.nii.gz")
    heads = ("capeneuro", "processor", "CanICA", "processor", "ratio")
    print(" " * 8, *(f"{head:>10}" for head in heads))
    for name, images, mask in (("GIFT", gift, "computed"), ("Haxby", haxby, grey)):
        with tempfile.TemporaryDirectory() as at:
            folder = Path(at)
            sites = {}
            for i, image in enumerate(images):  # half of the people at each site
                site = f"site-{i % 2 + 1}"
                person = folder / f"data/{site}/sub-{i}_bold.nii.gz"
                person.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(image, person)
                sites[site] = f"data/{site}/sub-*_bold.nii.gz"
            study_in(folder, sites, mask)
            snakemake = str(Path(sys.executable).parent / "snakemake")
            ours = spent(snakemake, "--cores", "2", cwd=folder)
            own = "-" if mask == "computed" else mask
            run = [sys.executable, "-W", "ignore", "-c", CANICA, own]
            other = spent(*run, *map(str, images), cwd=folder)
        numbers = *ours, *other, ours[1] / other[1]
        print(f"{name:8}", *(f"{number:10.2f}" for number in numbers))


if __name__ == "__main__":
    main()
