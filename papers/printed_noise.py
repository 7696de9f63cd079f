"""NOT VALID as claimed: CAPE with the noise that is printed, and what it promises.

The thesis adds to a second moment of samples of norm at most 1 the noise of the classic
Gaussian mechanism for a sensitivity of 1 / N [Alg. 4.1, 7.1]: a site has variance tau^2
that cancels and tau^2 / S that remains [(3.1)-(3.2)]. Bound, center and all that
follows are those of the corrected method, so that figures compare noise with noise.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from capeneuro import linalg
from capeneuro.federation.mechanism import Mechanism, Release
from capeneuro.federation.transport import Federation
from capeneuro.privacy import accounting, cape
from papers import as_printed, in_memory

# Of a second moment, over what is printed: e_1 for e_2 is sqrt(2) / N in Frobenius
# norm, 1 / N in the spectral one (X1).
SECOND_MOMENT = math.sqrt(2)


def cape_loss(n_sites: int, n_colluding: int) -> float:
    """Loss of CAPE's printed variances over that of one noise of variance tau^2."""
    each = np.ones(n_sites)
    return float(cape.losses(1.0, each, each / n_sites, n_colluding).max())


def promise(
    claimed: accounting.Budget, n_sites: int, share: float = 1.0
) -> accounting.Budget:
    """What the printed noise of one second moment promises, at the claimed delta.

    Parameters
    ----------
    claimed
        The nominal epsilon and delta, of that release alone.
    n_sites
        S of equal size.
    share
        That release's share of mu^2: what else is released, such as a center, comes on
        top, since the papers do not charge it.
    """
    tau = as_printed.classic_tau(1.0, claimed.epsilon, claimed.delta)
    mu = SECOND_MOMENT / tau * cape_loss(n_sites, claimed.n_colluding)
    epsilon = accounting.epsilon_from_mu(mu / math.sqrt(share), claimed.delta)
    return replace(claimed, epsilon=epsilon)


@dataclass(frozen=True)
class Printed(in_memory.Open):
    """CAPE with noise of the same deviation in every entry i <= j of a second moment.

    What the package releases has 1 / sqrt(2) of it off the diagonal. Neighbors that
    differ most, e_1 for e_2, differ on the diagonal alone, so the loss is the same.
    """

    def answer(
        self,
        federation: Federation,
        name: str,
        parameters: dict[str, Any],
        round_number: int = 0,
        reduction: str = "",
    ) -> Release:
        """Release one second moment; its `deviation` is that off the diagonal."""
        asked = federation, name, parameters, round_number, reduction
        released = super().answer(*asked)
        D = (math.isqrt(8 * released.value.size + 1) - 1) // 2
        off_diagonal = linalg.pack_symmetric(np.ones((D, D))) > 1
        more = released.deviation * np.random.default_rng().standard_normal(
            released.value.size
        )
        return replace(
            released,
            value=released.value + off_diagonal * more,
            deviation=math.sqrt(2) * released.deviation,
        )


def mechanism(mu: float, budget: accounting.Budget, n_sites: int) -> Mechanism:
    """Release a second moment with the printed noise, whose loss is mu."""
    return Printed("figure", "cape", 1 / mu, budget, float(n_sites))
