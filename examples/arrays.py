"""Arrays to components: two sites of 500 simulated people, epsilon 4 a person."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import capeneuro as cn

SIDE, R = 12, 5
rng = np.random.default_rng(0)
# Networks of one smooth region each, in an image of 12 by 12 pixels.
i, j = np.mgrid[:SIDE, :SIDE]
centers = [(2, 2), (2, 9), (9, 2), (9, 9), (5.5, 5.5)]
regions = [np.exp(-((i - a) ** 2 + (j - b) ** 2) / 6).ravel() for a, b in centers]
maps = np.stack(regions, axis=1)
people = [
    maps @ rng.laplace(size=(R, 60)) + 0.5 * rng.standard_normal((SIDE**2, 60))
    for _ in range(1000)
]

promise = cn.Budget(4, 1e-5, unit="subject")
sites = cn.federate({"north": people[:500], "south": people[500:]}, promise)
# A public constant: about the norm of one volume of such data.
V = cn.principal_subspace(sites, R, norm_bound=11, share=0.5)
U = cn.infomax(sites, V)
print(sites.privacy())

figure, axes = plt.subplots(2, R, figsize=(9, 4), layout="constrained")
for i in range(R):
    likeness = np.abs(np.corrcoef(U.mixing[:, i], maps.T)[0, 1:])
    shown = {
        "found": U.mixing[:, i],
        f"r {likeness.max():.2f}": maps[:, likeness.argmax()],
    }
    for axis, (title, values) in zip(axes[:, i], shown.items(), strict=True):
        most = np.abs(values).max()
        image = values.reshape(SIDE, SIDE)
        axis.imshow(image, cmap="RdBu_r", vmin=-most, vmax=most)
        axis.set(title=title, xticks=[], yticks=[])
figure.suptitle("Components at epsilon 4 a person, and the true maps nearest to them")
folder = Path("results/examples")
folder.mkdir(parents=True, exist_ok=True)
figure.savefig(folder / "arrays.png", dpi=110)
print(folder / "arrays.png")
