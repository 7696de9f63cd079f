"""A table: five sites of 400 people predict a number from eight features, epsilon 2."""

import numpy as np

import capeneuro as cn

rng = np.random.default_rng(0)
D, w = 8, np.array([8.0, -6.0, 4.0, 0, 0, 2.0, 0, -1.0])
data = {}
for k in range(5):
    x = rng.uniform(-1, 1, (D, 400))
    age = 50 + 3 * k + w @ x + 4 * rng.standard_normal(400)
    # A person is one sample: features, then the target.
    data[f"site-{k + 1}"] = list(np.vstack([x, age]).T[:, :, None])

sites = cn.federate(data, cn.Budget(2, 1e-5, unit="subject"))
model = cn.linear_model(sites, norm_bound=D**0.5, target_bounds=(18, 90))
print("feature  true  to predict  estimate (95% interval)")
told = zip(w, model.coefficients, model.estimates, strict=True)
for i, (true, found, alone) in enumerate(told):
    low, high = model.intervals[i]
    print(
        f"{i + 1:7d} {true:5.1f} {found:11.2f} {alone:7.2f} ({low:.2f} to {high:.2f})"
    )
r2, low, high = 100 * model.r2
print(f"explains {r2:.0f}% ({low:.0f} to {high:.0f}%) of the variance within sites")
print(sites.privacy())
