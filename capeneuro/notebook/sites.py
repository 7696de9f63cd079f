"""Sites made of arrays in this process, and the budget that they share.

For trying out, teaching, simulation, and one curator of several cohorts: whoever holds
all arrays in one process needs no secure sum, but sees here what a federation across
institutions would release and charge. There a study file says the same.
"""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, get_args

import numpy as np

from capeneuro.algorithms import folds
from capeneuro.federation.ledger import BudgetExceeded, Ledger
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.requests import Arm, Kind
from capeneuro.federation.rules import Limits
from capeneuro.federation.site import Site, longer
from capeneuro.federation.transport import InProcess
from capeneuro.privacy import accountants, accounting, cape
from capeneuro.privacy.accounting import Budget
from capeneuro.privacy.moments import GRAM_BLOCK

# Of shares that add up to all.
ROUNDING = 1e-9
People = Mapping[str, np.ndarray] | Sequence[np.ndarray]


class Sites:
    """Sites in this process with one budget; made by :func:`federate`.

    Parameters
    ----------
    people
        By site and person, features (n_features, n_samples), float32.
    budget
        The promise over all that is asked of these sites.
    arm
        How queries are answered.
    data
        What the arrays are.
    ledgers
        By site.
    noise_ratio
        ``sigma^2 / gamma`` of CAPE.
    accept
        Why noise above the signal is accepted; empty: it is refused.
    name
        What ledgers know its releases by.
    longest
        Most samples that anybody may have; None: not bounded.
    positions
        Public positions of the features, (n_features, 3); None: none are known.

    Attributes
    ----------
    names : tuple of str
        Of the sites, in their order.
    mechanisms : list of Mechanism
        One for each share of the budget that was taken, in order.
    """

    def __init__(
        self,
        people: Mapping[str, Mapping[str, np.ndarray]],
        budget: Budget,
        arm: Arm,
        data: Kind,
        ledgers: Mapping[str, Ledger],
        noise_ratio: float,
        accept: str = "",
        name: str = "arrays",
        longest: int | None = None,
        positions: np.ndarray | None = None,
    ) -> None:
        self.people, self.budget, self.arm, self.data = people, budget, arm, data
        self.names = tuple(people)
        self.mechanisms: list[Mechanism] = []
        self._ledgers, self._noise_ratio, self.accept = ledgers, noise_ratio, accept
        self._name, self.longest = name, longest
        self.positions = np.zeros((0, 3)) if positions is None else positions

    @property
    def n_units(self) -> int:
        """Number of units at all sites: persons, or samples."""
        everyone = [X for arrays in self.people.values() for X in arrays.values()]
        if self.budget.unit == "subject":
            return len(everyone)
        return sum(X.shape[1] for X in everyone)

    @property
    def unplanned_share(self) -> float:
        """Share of mu^2 of the budget that no released plan has taken."""
        if self.arm == "non-private":
            return 1.0
        planned = sum(
            m.n_releases / m.noise_multiplier**2 for m in self.mechanisms if m.releases
        )
        unplanned_share = 1.0 - planned / self.budget.mu**2
        return unplanned_share if unplanned_share > ROUNDING else 0.0

    def share(self, share: float | None) -> float:
        """Check a share of the budget before anything is planned with it.

        Parameters
        ----------
        share
            Of mu^2 of the whole budget, in (0, 1]; None: all that is left.

        Returns
        -------
        float
            The share.

        Raises
        ------
        BudgetExceeded
            If nothing is left, or less than is asked for.
        """
        if not self.unplanned_share:
            raise BudgetExceeded(
                f"nothing is left of the budget of epsilon {self.budget.epsilon:g}"
            )
        share = self.unplanned_share if share is None else share
        if not 0 < share <= self.unplanned_share * (1 + ROUNDING):
            raise BudgetExceeded(
                f"share: must be above 0 and at most the {self.unplanned_share:.3g} "
                f"of the budget that is left, got {share:.3g}"
            )
        return share

    def mechanism(self, n_releases: int, share: float | None = None) -> Mechanism:
        """Plan releases with a share of the budget.

        Parameters
        ----------
        n_releases
            Releases that share it, of the same noise each.
        share
            See :meth:`share`.

        Returns
        -------
        Mechanism
            How these releases are answered.

        Raises
        ------
        BudgetExceeded
            If nothing is left, or less than is asked for.
        """
        mu = self.budget.mu * float(np.sqrt(self.share(share) / n_releases))
        # Each has a name of its own: the same query asked twice is two releases.
        name = f"{self._name}-{len(self.mechanisms)}"
        planned = Mechanism(
            study=name,
            arm=self.arm,
            noise_multiplier=1 / mu,
            budget=self.budget,
            noise_ratio=self._noise_ratio,
            n_releases=None if self.arm == "non-private" else n_releases,
        )
        self.mechanisms.append(planned)
        return planned

    def federation(
        self,
        of: Callable[[int, np.ndarray], np.ndarray] | None = None,
        n_folds: int = 1,
    ) -> InProcess:
        """Open the sites.

        Parameters
        ----------
        of
            What a site holds of a person for an algorithm, from the place of the site,
            from 0, and the person's features; None: the features themselves. All that
            it computes is within one person.
        n_folds
            Folds of units whose second moments are released apart [:mod:`.folds`].

        Returns
        -------
        InProcess
            One site after the other, on the ledgers of these sites.
        """
        sites, S_C = {}, self.budget.n_colluding
        for k, (name, site_people) in enumerate(self.people.items()):
            features = {
                person: X if of is None else np.asarray(of(k, X), np.float32)
                for person, X in site_people.items()
            }
            lengths = {person: X.shape[1] for person, X in features.items()}
            if n_folds > 1:
                features = self._in_folds(k, features, n_folds)
            digest = sha256()
            for person, X in features.items():
                digest.update(repr((person, X.shape)).encode())
                digest.update(np.ascontiguousarray(X))
            sites[name] = Site(
                name=name,
                subjects=features,
                n_samples=lengths,
                ledger=self._ledgers[name],
                # What was released lies in this process and nowhere else.
                limits=Limits(self.data, min_colluding=S_C, keeps_answers=True),
                digest=digest.hexdigest(),
                together=GRAM_BLOCK if set(lengths.values()) == {1} else 1,
                longest=self.longest,
            )
        return InProcess(sites)

    def _in_folds(
        self, k: int, features: Mapping[str, np.ndarray], n_folds: int
    ) -> dict[str, np.ndarray]:
        """Features of a site's people, each unit's in the rows of its fold."""
        lengths = [X.shape[1] for X in features.values()]
        if self.budget.unit == "subject":
            numbers = folds.fold_numbers(len(lengths), n_folds, k).repeat(lengths)
        else:
            numbers = folds.fold_numbers(sum(lengths), n_folds, k)
        parts = np.split(numbers, np.cumsum(lengths)[:-1])
        pairs = zip(features.items(), parts, strict=True)
        return {person: folds.stack(X, part, n_folds) for (person, X), part in pairs}

    def privacy(self) -> dict[str, Any]:
        """Budget that was promised and spent, and the share that no plan has taken.

        Returns
        -------
        dict
            ``promise`` (epsilon; infinite without privacy), ``delta``, ``unit``,
            ``n_colluding``, ``arm``; ``person``, epsilon at worst for everything of one
            person, infinite where the unit is a sample and ``longest`` bounds nobody's
            number; ``spent``, the exact epsilon of all releases so far against
            the aggregator and the colluding sites (of ``pooled`` against readers of the
            result; infinite without privacy), and ``left``, the share of mu^2 that
            nothing was planned with; ``releases``, the number of each query;
            ``accepted``, why noise above the signal was, empty if it was not.
        """
        records = [record for m in self.mechanisms for record in m.releases]
        # A trusted curator sees all and adds the noise: its promise is for the result.
        view = "reader" if self.arm == "pooled" else "aggregator_and_colluders"
        mus = [
            max(site["mu"][view] or np.inf for site in record["sites"].values())
            for record in records
        ]
        counts: dict[str, int] = {}
        for record in records:
            counts[record["query"]] = counts.get(record["query"], 0) + 1
        n, worst = 1 if self.budget.unit == "subject" else self.longest, np.inf
        if n is not None:
            worst = accountants.person_epsilon(self.budget.mu, n, self.budget.delta)
        exact, nothing = np.inf in mus, self.arm == "non-private"
        mu = 0.0 if exact else accounting.compose(mus)
        spent = np.inf if exact else accounting.epsilon_from_mu(mu, self.budget.delta)
        return {
            "promise": np.inf if nothing else self.budget.epsilon,
            "person": np.inf if nothing else worst,
            "delta": self.budget.delta,
            "unit": self.budget.unit,
            "n_colluding": self.budget.n_colluding,
            "arm": self.arm,
            "spent": spent,
            "left": self.unplanned_share,
            "releases": counts,
            "accepted": self.accept,
        }

    def __repr__(self) -> str:
        people = sum(len(site_people) for site_people in self.people.values())
        return (
            f"Sites({', '.join(self.names)}; {people} people, arm {self.arm}, "
            f"epsilon {self.budget.epsilon:g} a {self.budget.unit}, "
            f"{100 * self.unplanned_share:.0f}% left)"
        )


def federate(
    people: Mapping[str, People],
    budget: Budget,
    arm: Arm = "cape",
    *,
    basis: Any = None,
    data: Kind = "simulated",
    ledgers: Mapping[str, Ledger] | None = None,
    noise_ratio_per_site: float = cape.NOISE_RATIO_PER_SITE,
    accept: str = "",
    longest: int | None = None,
    positions: np.ndarray | None = None,
) -> Sites:
    """Make sites of arrays that are all in this process, with one budget for all.

    With a ``basis`` people are 4-D images, or paths to them, and features are what the
    masker makes of each volume; ``basis.inverse_transform(U.mixing.T)`` makes images of
    what a verb finds.

    Parameters
    ----------
    people
        By site its people: arrays of features by samples (n_features, n_samples) by
        name, or a list of them; with a ``basis`` images. One person is at one site
        only.
    budget
        The promise over all that is asked of these sites; a ``n_colluding`` of None is
        filled in for the number of sites.
    arm
        ``"cape"``; or ``"secure_sum"``, the limit of all zero-sum noise;
        ``"conventional"``, each site with its own noise; ``"local"``, the first site
        alone; ``"pooled"``, a trusted curator; ``"non-private"``, exact.
    basis
        A masker of nilearn with its image given: ``NiftiMasker(mask_img=...)``,
        ``NiftiLabelsMasker(labels_img=...)`` or ``NiftiMapsMasker(maps_img=...)``. That
        image defines the features and must be public. What it does to a run, such as
        ``standardize``, is within the person; smoothing and confounds as well. None:
        people are arrays.
    data
        What the arrays are: ``"simulated"``, ``"public"``, or ``"private"``, which
        needs ledgers on disk and refuses the arms ``pooled`` and ``non-private``.
    ledgers
        By site, what its people have spent, kept on disk over sessions; None: in
        memory, forgotten at the end of this process.
    noise_ratio_per_site
        ``sigma^2 / (gamma S)`` of CAPE's zero-sum noise.
    accept
        Why a result is wanted whose noise is foretold to exceed its signal; empty: the
        verb that would release it refuses.
    longest
        Most samples that anybody may have, from the protocol; sites refuse more, and
        what a promise to one sample is for a whole person follows from it. None: 1
        where everybody has one, else not bounded.
    positions
        Public positions of the features, (n_features, 1 to 3), such as centers of
        regions [mm]. Without them nothing distinguishes a network from smooth noise,
        so no component is a finding. None: those of the ``basis``, if it is a mask or
        regions.

    Returns
    -------
    Sites
        What the verbs of :mod:`capeneuro` take first.

    Raises
    ------
    ValueError
        If there is no site, a site without people, a person at two sites,
        numbers that are not finite, or arrays that do not fit together; if somebody has
        more samples than ``longest``; if the arm or
        the kind of data is unknown; if data are private and a site has no ledger; if
        the basis would be computed from people's images.

    Guarantee
    ---------
    Each site charges its ledger before it answers and refuses what the budget does not
    pay for, whatever is asked in whatever order.
    """
    for parameter, value, allowed in (("arm", arm, Arm), ("data", data, Kind)):
        if value not in get_args(allowed):
            raise ValueError(
                f"{parameter}: must be of {', '.join(get_args(allowed))}, got {value!r}"
            )
    if not isinstance(people, Mapping):
        raise ValueError("people: must be by site: {'north': [X, ...], ...}")
    if not people:
        raise ValueError("a federation needs at least one site, got none")
    if basis is not None:
        people = _transformed(people, basis)
        positions = _positions(basis) if positions is None else positions
    named = {name: _named(name, site_people) for name, site_people in people.items()}
    sizes = {X.shape[0] for site_people in named.values() for X in site_people.values()}
    if len(sizes) != 1:
        raise ValueError(
            "all arrays must have the same features as rows, and volumes as columns; "
            f"got {', '.join(map(str, sorted(sizes)))} rows"
        )
    lengths = {
        person: X.shape[1] for arrays in named.values() for person, X in arrays.items()
    }
    if longest is None and set(lengths.values()) == {1}:
        longest = 1
    if person := longer(lengths, longest):
        raise ValueError(
            f"longest: nobody may have more than {longest} samples, got "
            f"{lengths[person]} of {person}; shorten or exclude them"
        )
    if budget.n_colluding is None:
        default = accounting.coalition(len(people))
        budget = replace(budget, n_colluding=default)
    if not 0 <= budget.n_colluding < len(people):
        raise ValueError(
            f"n_colluding: must be below the number of sites {len(people)}, got "
            f"{budget.n_colluding}"
        )
    counts = Counter(person for site_people in named.values() for person in site_people)
    if twice := sorted(person for person, n in counts.items() if n > 1):
        raise ValueError(
            f"{twice[0]}: is at two sites, where losses would add up; a person is at "
            "one site"
        )
    if data == "private" and set(ledgers or {}) != set(people):
        raise ValueError(
            "private data need a ledger on disk for each site: ledgers={'north': "
            "cn.Ledger(Path('north/ledger'), budget), ...}"
        )
    if positions is not None:
        positions = np.atleast_2d(np.asarray(positions, float).T).T
        n_features = next(iter(sizes))
        if positions.shape not in [(n_features, k) for k in (1, 2, 3)]:
            raise ValueError(
                f"positions: must be ({n_features}, 1 to 3), a row for each feature, "
                f"got {positions.shape}"
            )
    books = {name: (ledgers or {}).get(name) or Ledger(None, budget) for name in people}
    ratio = noise_ratio_per_site * len(people)
    return Sites(
        people=named,
        budget=budget,
        arm=arm,
        data=data,
        ledgers=books,
        noise_ratio=ratio,
        accept=accept,
        longest=longest,
        positions=positions,
    )


def _transformed(people: Mapping[str, Any], basis: Any) -> dict[str, Any]:
    """Features of people's images by a public masker."""
    images = ("mask_img", "labels_img", "maps_img")
    # Privacy: fitted to images, a masker's mask would be a release that nobody charged.
    if all(getattr(basis, name, None) is None for name in images):
        raise ValueError(
            "basis: must be a masker of nilearn with its public mask_img, labels_img "
            f"or maps_img given, got {type(basis).__name__}"
        )
    basis.fit()

    def features(site: str, person: Any, image: Any) -> np.ndarray:
        try:
            return basis.transform(image).T
        except ValueError as error:  # of nilearn, which does not say whose
            message = " ".join(str(error).split())
            raise ValueError(f"{site}, person {person}: {message}") from None

    transformed: dict[str, Any] = {}
    for site, site_images in people.items():
        if isinstance(site_images, Mapping):
            transformed[site] = {
                person: features(site, person, site_images[person])
                for person in site_images
            }
        else:
            transformed[site] = [
                features(site, i + 1, image) for i, image in enumerate(site_images)
            ]
    return transformed


def _positions(basis: Any) -> np.ndarray | None:
    """Centers of a fitted masker's voxels or regions [mm]; None: its maps have none."""
    if getattr(basis, "maps_img", None) is not None:
        return None
    is_of_regions = getattr(basis, "labels_img", None) is not None
    image = basis.labels_img_ if is_of_regions else basis.mask_img_
    labels = np.asarray(image.dataobj)
    voxels = np.argwhere(labels > 0)
    places = voxels @ image.affine[:3, :3].T + image.affine[:3, 3]
    if not is_of_regions:
        return places
    _, region = np.unique(labels[labels > 0], return_inverse=True)
    sums = [np.bincount(region, axis) for axis in places.T]
    return (np.array(sums) / np.bincount(region)).T


def _named(site: str, people: People) -> dict[str, np.ndarray]:
    """People of one site by name, as float32 arrays of two axes."""
    if isinstance(people, np.ndarray) and people.ndim < 3:
        raise ValueError(f"{site}: must be a list of its people's arrays: [X, ...]")
    if not isinstance(people, Mapping):
        people = {f"{site}-{i + 1}": X for i, X in enumerate(people)}
    if any(isinstance(X, str | os.PathLike) for X in people.values()):
        raise ValueError(f"{site}: people are paths to images; give a masker, basis=")
    with np.errstate(over="ignore"):  # refused below
        arrays = {str(name): np.asarray(X, np.float32) for name, X in people.items()}
    if not arrays:
        raise ValueError(f"{site}: a site needs at least one person")
    for name, X in arrays.items():
        if X.ndim != 2 or not X.size:
            raise ValueError(
                f"{site}: {name}: must be (n_features, n_samples), got {X.shape}"
            )
        if bad := int((~np.isfinite(X)).any(axis=0).sum()):
            raise ValueError(
                f"{site}: {name}: must be finite numbers in float32, got {bad} of "
                f"{X.shape[1]} samples with others; leave these samples out"
            )
    return arrays
