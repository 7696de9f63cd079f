"""Simulated tables of thickness have the slopes that they claim."""

import numpy as np
import pandas as pd
import pytest

from sim import thickness


def test_three_regions_are_thinner_with_the_score(tmp_path):
    thickness.write(tmp_path, 3000, 2, seed=3)
    people = pd.concat([pd.read_csv(tmp_path / f"site-{k}.csv") for k in (1, 2)])
    assert people.participant_id.is_unique and people.score.between(0, 27).all()
    bounds = pd.read_csv(tmp_path / "features.tsv", sep="\t")
    assert list(bounds.feature) == [*thickness.REGIONS] == [*people.columns[5:]]
    Y = people[[*thickness.REGIONS]].to_numpy()
    is_beyond = np.abs(Y - (bounds.low + bounds.high).to_numpy() / 2) > thickness.REACH
    assert is_beyond.mean() < 0.02
    X = np.column_stack([np.ones(3000), people.score / 5, people.age / 12])
    slopes = np.linalg.lstsq(X, Y, rcond=None)[0][1:]
    of_score = [-0.05 * (name in thickness.THINNER) for name in thickness.REGIONS]
    assert slopes[0] == pytest.approx(of_score, abs=0.015)
    assert slopes[1] == pytest.approx(-thickness.LOST_BY_AGE, abs=0.015)
    thickness.write(tmp_path / "again", 3000, 2, seed=3)
    same = (tmp_path / "again/site-2.csv").read_bytes()
    assert same == (tmp_path / "site-2.csv").read_bytes()
