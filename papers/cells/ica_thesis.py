"""What thesis chapter 6 draws beside the total epsilon: rounds, and maps.

The experiments ``ica_rounds``, by the epsilon of one round, and ``ica_maps``;
``papers/grids/ica_*.yaml`` say what is run.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from capeneuro.algorithms import metrics
from capeneuro.data import basis
from capeneuro.privacy import accounting
from papers import as_printed, printed_noise
from papers.cells import ica
from sim.sources import maps_2d


def ica_rounds(
    *,
    n_subjects: int,
    seed: int,
    methods: Mapping[str, Mapping[str, Any]],
    round_epsilons: list[float],
    n_rounds: int,
    round_delta: float = 1e-2,
    delta: float = 1e-5,
    n_colluding: int = 1,
    pca_share: float = 0.3,
    **options: Any,
) -> list[dict[str, Any]]:
    """Separate a study by the epsilon of one round, thesis figures 6.2 and 6.3.

    Parameters
    ----------
    n_subjects, seed
        As in :func:`.ica.ica_scores`; the unit is a volume.
    methods
        As in :func:`.ica.ica_scores`. With ``noise: printed`` a round has the noise of
        the classic mechanism split as thesis (3.1)-(3.2), else what makes the round
        (epsilon, delta)-private against the aggregator and the colluders.
    round_epsilons, round_delta
        Promise of one round; the thesis prints 1e-2 in its noise.
    n_rounds
        J of every private method.
    delta
        Of the totals.
    n_colluding, pca_share
        Of the view that is charged; PCA's share of mu^2, beside the rounds.
    **options
        Of :func:`.ica.run_ica` and :func:`.ica.simulate`.

    Returns
    -------
    list of dict
        For each ``method`` and ``round_epsilon`` the scores of
        :func:`.ica.ica_scores` and the total epsilon, of PCA and all rounds:
        ``total`` exact in the true view, ``total_rdp`` by Renyi DP there,
        ``total_printed`` by Theorem 6.1 (rounds alone) or, of DP-djICA, as its paper
        claims.
    """
    options |= {"n_rounds": n_rounds, "pca_share": pca_share}
    A, people = ica.simulate(n_subjects, seed, **ica.data_options(options))
    S, memo = len(people), {}
    rows, after = [], {}
    for method, own in methods.items():
        for epsilon in round_epsilons:
            chosen = {**options, **own}
            printed = chosen.pop("noise", "") == "printed"
            after[method] = chosen.pop("after", None)
            mu = accounting.mu_from_epsilon(epsilon, round_delta)
            if printed:
                nominal = 1 / as_printed.classic_tau(1, epsilon, round_delta)
                mu = nominal * printed_noise.cape_loss(S, n_colluding)
                chosen["noise_ratio_per_site"] = 1.0
            many = n_rounds / (1 - pca_share)
            total = accounting.epsilon_from_mu(mu * np.sqrt(many), delta)
            totals = {
                "total": total,
                "total_rdp": accounting.rdp_epsilon(mu * np.sqrt(many), delta),
                "total_printed": 2 * n_rounds * epsilon,
            }
            if chosen["arm"] == "dp-djica":
                total = epsilon * many
                totals = {"total": None, "total_rdp": None, "total_printed": total}
            if chosen["arm"] in ("non-private", "djica"):
                totals = dict.fromkeys(totals)
            about = delta, "sample", "replace-one", n_colluding
            budget = accounting.Budget(total, *about)
            scores = ica.score(A, people, budget, memo, **chosen)
            row = {"method": method, "round_epsilon": epsilon, **scores, **totals}
            rows.append(row)
    ica.compare(rows, after, "round_epsilon")
    return rows


def ica_maps(
    *,
    n_subjects: int,
    seed: int,
    methods: Mapping[str, Mapping[str, Any]],
    shown: int = 5,
    delta: float = 1e-5,
    n_colluding: int = 1,
    **options: Any,
) -> list[dict[str, Any]]:
    """Maps of each method beside the true ones, thesis figures 6.5 and 6.6.

    Parameters
    ----------
    n_subjects, seed, methods, delta, n_colluding, **options
        As in :func:`.ica.ica_scores`, every method at its own ``epsilon``.
    shown
        Number of true maps, the first.

    Returns
    -------
    list of dict
        For each ``method``, the true maps among them, each ``source`` and pixel
        (``across``, ``down``) the ``weight``: matched one to one, signed as the truth
        and scaled to a largest absolute value of 1; and ``r`` of the whole map.
    """
    data = ica.data_options(options)
    A, people = ica.simulate(n_subjects, seed, **data)
    R = A.shape[1]
    networks = ica.networks_of(R)
    found, memo = {"true": A}, {}
    for method, own in methods.items():
        chosen = {**options, **own, "n_components": R}
        about = delta, "sample", "replace-one", n_colluding
        budget = accounting.Budget(chosen.pop("epsilon", 1.0), *about)
        result = ica.run(people, budget, memo, **chosen)[0]
        order, r = metrics.match(result.mixing, A)
        found[method] = result.mixing[:, order] * np.sign(r)
    mask = maps_2d(networks, ica.N_SIDE)[1]
    synthesis = basis.grid(mask, data.get("cube", 1)).synthesis
    where = np.argwhere(mask)
    rows = []
    for method, maps in found.items():
        for k in range(shown):
            image = synthesis @ maps[:, k]
            image /= np.abs(image).max()
            r = float(np.corrcoef(maps[:, k], A[:, k])[0, 1])
            about = {"method": method, "source": networks[k].name}
            for (down, across), value in zip(where, image, strict=True):
                pixel = {"across": int(across), "down": int(down)}
                value = round(float(value), 3)
                rows.append({**about, **pixel, "weight": value, "r": round(r, 3)})
    return rows
