"""Open a site on its prepared features, with the rules that it answers by."""

from collections.abc import Mapping

import numpy as np

from capeneuro.config.errors import ConfigError, some
from capeneuro.config.site import SiteConfig
from capeneuro.config.study import StudyConfig
from capeneuro.data import files, inventory
from capeneuro.federation.manifest import Manifest
from capeneuro.federation.rules import Limits
from capeneuro.federation.site import Site
from capeneuro.site_data.people import double_error, length_error
from capeneuro.site_data.terms import (
    agreed_fields,
    least_colluding,
    open_ledger,
    stages_of,
)

# Releases for which people's samples are read anew, and not kept between them.
FEW_RELEASES = 3


def open_site(
    study: StudyConfig,
    sites: Mapping[str, SiteConfig],
    name: str,
    manifest: Manifest | None = None,
    mask_key: bytes | None = None,
) -> Site:
    """Open one site on its prepared features, with its own rules.

    Without a manifest all sites are in this process, and the keys of their ledgers are
    read. ``mask_key`` is the secret half of that in the site's entry.
    """
    site = sites[name]
    if manifest is None:
        pins = {n: open_ledger(s).public_key for n, s in sites.items()}
        lineage, mask_keys = study.lineage, None
    else:
        # Sites' identities stay the same over revisions, so that a round which a
        # revision does not change is the same request, stored and paid.
        pins, lineage, mask_keys = manifest.keys, manifest.root, manifest.mask_keys
        if pins[name] != open_ledger(site).public_key:
            raise ConfigError(
                f"site {name}: ledger: its key is not the one that the manifest has; "
                "restore the key, or join anew"
            )
    limits = Limits(
        site.data,
        site.min_noise_multiplier,
        least_colluding(study, site),
        roster=pins,
        study=agreed_fields(study),
        promise=study.promise_of(name),
        agreed=study.identity,
        lineage=lineage,
        stages=stages_of(study),
        made_from=study.earlier[study.handed.of].identity if study.handed else "",
        mask_keys=mask_keys,
    )
    people = files.Features(study.private(name) / "projected.npz")
    # Features may be prepared under another site file, or another limit.
    error = length_error(study, people.n_samples)
    if gone := inventory.no_longer_taken(site, people.n_samples):
        error = (
            f"without: {some(gone)} left and is among those who were prepared; run "
            "`prepare` again"
        )
    if error := error or double_error(study, site, people.n_samples):
        raise ConfigError(f"site {name}: {error}")
    subjects: Mapping[str, np.ndarray] = people
    if study.together > 1 and sum(study.n_releases.values()) > FEW_RELEASES:
        # One sample each is little: reading all of them anew would be most of a round.
        subjects = {label: np.array(x) for label, x in people.items()}
    return Site(
        name,
        subjects,
        people.n_samples,
        open_ledger(site),
        limits,
        people.digest,
        site.seed,
        study.together,
        study.longest,
        mask_key,
    )
