"""A site's data for one study: the one way from its files to what it releases.

Below it is all that keeps the promise, and nothing there knows a study or an image:
admission, bounds, noise, charge, seal. Above it are plans and reports. What is handed
over is features by person id, how many columns each person has and may have, and the
rules by which the site answers [docs/proofs.md].

terms
    The ceiling and the rules that a site's own file and the study's set.
opening
    Open a site on its prepared features.
people
    Nobody is counted twice, or has more volumes than the study allows.
"""
