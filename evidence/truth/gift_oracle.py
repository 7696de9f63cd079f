"""MATLAB GIFT's own chain and components of one person, reproduced and compared.

Run ``python evidence/truth/gift_oracle.py`` from the repository; it needs the
extra ``dev`` and the data in ``../shared/data`` or ``$CAPENEURO_DATA``. First comes the
largest relative error of each deterministic step; then, for spatial ICA of sub-007
without privacy (20 components, 50 time points, samples are 4848 voxels in two public
sites), the matched |r| of each component with GIFT's, and each solution's
log-likelihood.
"""

from pathlib import Path

import h5py
import nibabel as nib
import numpy as np
from picard import picard
from picard.densities import Tanh
from scipy.io import loadmat

from capeneuro import linalg
from capeneuro.algorithms import ica, metrics
from capeneuro.algorithms.pca import Subspace, principal_subspace
from capeneuro.config.sections import Cleaning, Space
from capeneuro.config.site import SiteConfig
from capeneuro.data import nifti
from capeneuro.federation.ledger import Ledger
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.rules import Limits
from capeneuro.federation.site import Site
from capeneuro.federation.transport import InProcess
from capeneuro.privacy import accounting
from evidence.truth import rates

ROOT = Path(__file__).parents[2]
DATA = rates.DATA.resolve()
FOLDER = DATA / "fmri4d_gift"
RUN = FOLDER / "sub-007_lowres.nii.gz"
# A hundred times djICA's rate, for a mean over samples; annealed as djICA does.
FAST = ica.Schedule(learning_rate=1.5)


def load() -> dict[str, np.ndarray]:
    """What GIFT wrote, by name, in MATLAB's orientation; eigenpairs descending.

    Signs of eigenvectors, and all that depends on them, follow
    :func:`.linalg.top_eigenpairs`.
    """
    found: dict[str, np.ndarray] = {}

    def keep(name, item):
        if isinstance(item, h5py.Dataset):
            found[name.split("/")[-1]] = item[()].T

    for name in ("lores_ica", "lores_ica_br1_match", "lores_pca_r1-1"):
        with h5py.File(FOLDER / f"gift_oracle/{name}.mat") as file:
            file.visititems(keep)
    order = np.argsort(-np.diag(found["Lambda"]))
    signs = linalg.peak_signs(found["V"][:, order])
    found["Lambda"] = np.diag(found["Lambda"])[order]
    for name in ("V", "dewhiteM", "pcasig", "W"):
        found[name] = found[name][:, order] * signs
    for name in ("whiteM", "A"):
        found[name] = found[name][order] * signs[:, None]
    varnorm = loadmat(FOLDER / "gift_oracle/preproc_data_varnorm_post.mat")
    return found | {"varnorm": varnorm["preproc_data_varnorm_post"]}


def error(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Largest difference over the largest magnitude."""
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def chain(gift: dict[str, np.ndarray]) -> dict[str, float]:
    """Largest relative error of each deterministic step."""
    image = nib.load(RUN)
    volumes = image.get_fdata().reshape(-1, image.shape[3], order="F")
    inside = volumes[:, 0] >= volumes[:, 0].mean()
    voxels = volumes[inside]
    D = voxels - voxels.mean(axis=0)
    values, V = linalg.top_eigenpairs(D.T @ D / (len(D) - 1), len(gift["W"]))
    # No floor: raw images have one eigenvalue 13,000 times the second.
    whitening = Subspace(values, V, 1.0).whitening(floor=0)
    unmixing = gift["W"] @ whitening
    return {
        "mask": error(np.flatnonzero(inside) + 1.0, gift["mask_ind"].ravel()),
        "eigenvalues": float(np.abs(values / gift["Lambda"] - 1).max()),
        "eigenvectors": error(V, gift["V"]),
        "whitening": error(whitening, gift["whiteM"]),
        "whitened data": error(D @ whitening.T, gift["pcasig"]),
        "components": error(unmixing @ D.T, gift["icasig"]),
        "back-reconstructed maps": error(unmixing @ D.T, gift["ic"]),
        "mixing": error(np.linalg.pinv(gift["W"]), gift["A"]),
        "time courses": error(np.linalg.pinv(unmixing), gift["tc"].T),
        "variance normalization": error(features(gift), gift["varnorm"]),
    }


def features(gift: dict[str, np.ndarray]) -> np.ndarray:
    """The package's own features of the run, z-scored, float32, in GIFT's order."""
    image = nifti.open_image(RUN, 4)
    inside = np.zeros(image.shape[:3], np.uint8)
    own = np.unravel_index(gift["mask_ind"].ravel().astype(int) - 1, inside.shape, "F")
    inside[own] = 1
    fields = {"unit": "sample", "epsilon": 1, "delta": 1e-5, "ledger": "ledger"}
    site = SiteConfig(name="gift", images=str(RUN), data="public", **fields)
    space = Space(mask="given", basis="voxels")
    mask = nib.Nifti1Image(inside, image.affine)
    cleaning = Cleaning(standardize="zscore")
    basis = nifti.build_basis(space, mask)
    rows = np.full(inside.shape, -1)
    rows[inside > 0] = np.arange(len(own[0]))
    reader = nifti.RunReader(site, space, cleaning, mask)
    return reader.features(RUN, basis)[rows[own]]


def federate(X: np.ndarray) -> tuple[InProcess, Mechanism]:
    """Two public sites with half of the samples each, and exact answers."""
    ceiling = accounting.Budget(1.0, 1e-5, "sample", "replace-one", 0)
    sites = {}
    for name, part in zip("ab", np.array_split(X, 2, axis=1), strict=True):
        people, n = {name: part.astype(np.float32)}, {name: part.shape[1]}
        sites[name] = Site(name, people, n, Ledger(None, ceiling), Limits("public"))
    return InProcess(sites), Mechanism("gift", "non-private", 1.0, ceiling, 1.0)


def unmix(X: np.ndarray, start: np.ndarray | None = None, **options) -> np.ndarray:
    """Unmixing W of whitened X, shape (R, n), by the package's infomax.

    ``infomax`` starts at SCALE times the whitening, so the start is given as that.
    """
    start = ica.SCALE * np.eye(len(X)) if start is None else start
    subspace = Subspace(np.ones(len(X)), start.T / ica.SCALE, 1.0)
    own = {"clip": np.inf, "tol": 1e-5, "start": "identity", **options}
    return ica.infomax(*federate(X), subspace, **own).unmixing


def bias(W: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Best bias of given weights: where the mean score of each source is 0."""
    b = np.zeros((len(W), 1))
    for _ in range(100):
        psi = np.tanh((W @ X + b) / 2)
        slope = (1 - psi**2).mean(axis=1, keepdims=True) / 2
        b -= psi.mean(axis=1, keepdims=True) / slope
    return b


def log_likelihood(W: np.ndarray, X: np.ndarray) -> float:
    """Infomax' objective [nats a sample], with the best bias."""
    Z = W @ X + bias(W, X)
    cost = 2 * np.logaddexp(Z / 2, -Z / 2).sum(axis=0).mean()
    return float(np.linalg.slogdet(W)[1] - cost)


def gradient_norm(W: np.ndarray, X: np.ndarray) -> float:
    """Norm of ``I - mean psi(z) z'`` with the best bias; 0 at an optimum."""
    Z = W @ X + bias(W, X)
    return float(np.linalg.norm(np.eye(len(W)) - np.tanh(Z / 2) @ Z.T / X.shape[1]))


def matched(W: np.ndarray, X: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """|r| of each of GIFT's components with the one paired with it."""
    return np.abs(metrics.match((W @ X).T, truth.T)[1])


def span(W: np.ndarray, X: np.ndarray, truth: np.ndarray, worst: list) -> np.ndarray:
    """Canonical correlations between some of GIFT's components and those paired."""
    order, _ = metrics.match((W @ X).T, truth.T)
    ours, theirs = (np.linalg.qr(Z.T)[0] for Z in ((W @ X)[order[worst]], truth[worst]))
    return np.linalg.svd(ours.T @ theirs)[1]


def solutions(gift: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Unmixing of GIFT's whitened data by several ways; picard has no bias."""
    X, W = gift["pcasig"].T, gift["W"]
    same = {"fun": Tanh({"alpha": 0.5}), "ortho": False, "extended": False}
    same |= {"whiten": False, "centering": False, "max_iter": 2000}
    left, _, right = np.linalg.svd(W)
    rotation = ica.SCALE * left @ right
    slow = {"update": "gradient", "n_rounds": 5000, "schedule": FAST}
    return {
        "GIFT": W,
        "orthogonal": unmix(X, n_rounds=300),
        "gradient": unmix(X, **slow),
        "picard": picard(X, w_init=np.eye(len(X)), **same)[1],
        "orthogonal from GIFT": unmix(X, rotation, n_rounds=300),
        "gradient from GIFT": unmix(X, W, **slow),
        "picard from GIFT": picard(X, w_init=W, **same)[1],
    }


def main() -> None:
    """Print the tables."""
    gift = load()
    for step, e in chain(gift).items():
        print(f"{step:24} {e:.1e}")
    X, truth = gift["pcasig"].T, gift["icasig"]
    # Within the subspace the data are dewhiteM pcasig': sites hold them in float32.
    federation, mechanism = federate(gift["dewhiteM"] @ X)
    found = principal_subspace(federation, mechanism, len(X), 1.0, np.inf)
    scale = X.shape[1] / (X.shape[1] - 1)
    e = np.abs(found.eigenvalues * scale / gift["Lambda"] - 1).max()
    print(f"{'eigenvalues by sites':24} {e:.1e}")
    runs = solutions(gift)
    r = {name: matched(W, X, truth) for name, W in runs.items()}
    print(f"\nchance |r| {metrics.chance_match(truth.T):.3f}")
    for name, W in runs.items():
        worst = np.flatnonzero(r[name] < 0.9).tolist()
        print(
            f"{name:21} mean |r| {r[name].mean():.3f}, least {r[name].min():.3f}, "
            f"log-likelihood {log_likelihood(W, X):.4f}, "
            f"gradient {gradient_norm(W, X):.4f}"
        )
        if worst:
            numbers = [k + 1 for k in worst]
            print(f"{'':21} span of {numbers}: {span(W, X, truth, worst).round(3)}")
    print("component " + "  ".join(list(runs)[1:]))
    for k in range(len(truth)):
        row = (f"{r[name][k]:{len(name)}.3f}" for name in list(runs)[1:])
        print(f"{k + 1:9} " + "  ".join(row))
    rng = np.random.default_rng(0)
    for k in range(8):
        Q = np.linalg.qr(rng.standard_normal(gift["W"].shape))[0]
        W = unmix(X, ica.SCALE * Q, n_rounds=400)
        print(
            f"random start {k + 1}: mean |r| {matched(W, X, truth).mean():.3f}, "
            f"log-likelihood {log_likelihood(W, X):.4f}"
        )


if __name__ == "__main__":
    main()
