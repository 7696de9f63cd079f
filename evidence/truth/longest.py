"""How well everything of a person can be guessed where a volume is the unit.

    python -m evidence.truth.longest --draws 4000

A person with n volumes, all alike, is one of two, as far apart as a clipped mean lets
them be; whoever knows everybody else guesses from the mean that one site releases. The
share of right guesses is compared with the bound of everything of a person, Phi(n mu /
2), from which the epsilon of a person follows, and with what one volume is promised.
Beside it: how often a person with more volumes than that gets in. The rate is by how
many standard errors the share exceeds its bound at most, in nine cells.
"""

import numpy as np

import capeneuro as cn
from capeneuro.notebook.sites import Sites
from capeneuro.privacy import accountants, accounting
from evidence.truth import rates

DELTA, CLIP, N_FEATURES, N_OTHERS = 1e-5, 1.0, 3, 20
EPSILONS, VOLUMES = (0.1, 0.5, 2.0), (1, 4, 12)


def federation(epsilon: float, n_volumes: int, value: float, longest: int) -> Sites:
    """Two sites; the person, whose volumes are all `value`, is at the first."""
    person = np.zeros((N_FEATURES, n_volumes), np.float32)
    person[0] = value
    other = np.zeros((N_FEATURES, min(N_OTHERS, longest)), np.float32)
    people = {"first": {"person": person, "other": other}, "second": {"third": other}}
    budget = cn.Budget(epsilon, DELTA, "sample")
    # The arm of one site, so that its noise alone counts, as for the worst coalition.
    return cn.federate(people, budget, "local", longest=longest)


def right_guesses(
    epsilon: float, n_volumes: int, n_draws: int, seed: int
) -> tuple[float, float, float]:
    """Share of right guesses, its bound for the person, and that for one volume."""
    coins = np.random.default_rng(seed).random(n_draws) < 0.5
    n_right = 0
    for coin in coins:
        value = CLIP if coin else -CLIP
        sites = federation(epsilon, n_volumes, value, n_volumes)
        mechanism = sites.mechanism(1)
        about = "mean", {"norm_bound": 1.0, "clip": CLIP}
        mean = mechanism.answer(sites.federation(), *about).value
        n_right += (mean[0] > 0) == coin
    mu = accounting.mu_from_epsilon(epsilon, DELTA)
    bounds = (
        accounting.attack_accuracy_bound(n_volumes * mu),
        accounting.attack_accuracy_bound(mu),
    )
    return n_right / n_draws, *bounds


def gets_in(n_volumes: int, longest: int) -> bool:
    """Whether a site takes a person with so many volumes."""
    try:
        federation(1.0, n_volumes, CLIP, longest).federation()
    except ValueError:
        return False
    return True


def main() -> None:
    """Print a row for each promise and number of volumes."""
    n_draws = rates.options(__doc__, 400).parse_args().draws
    print("epsilon of a volume\tvolumes\tof the person\tright\t+-\tbound\tvolume")
    over = []
    for epsilon in EPSILONS:
        for n in VOLUMES:
            share, bound, one = right_guesses(epsilon, n, n_draws, seed=n)
            mu = accounting.mu_from_epsilon(epsilon, DELTA)
            person = accountants.person_epsilon(mu, n, DELTA)
            error = max(bound * (1 - bound) / n_draws, 0.25 / n_draws**2) ** 0.5
            over.append((share - bound) / error)
            numbers = share, error, bound, one
            print(f"{epsilon:g}", n, f"{person:.3g}", *(f"{x:.4f}" for x in numbers))
    limits = range(1, 51)
    longer = sum(gets_in(limit + 1, limit) for limit in limits)
    rates.say("person-bound/simulated", max(0.0, *over))
    rates.say("person-limit/simulated", longer / len(limits), len(limits))


if __name__ == "__main__":
    main()
