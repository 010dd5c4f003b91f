"""
Denoise heartbeats
==================

The signals are generated pulses of a wearable sensor with noise, one beat per signal. A kernel dictionary represents
each beat by four atoms, and a decoder maps the codes back to signals. For comparison, a linear dictionary uses four
atoms too, and PCA the number of components that is best for these data, which is known only because the clean beats
are.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA

from rkdl import DL, ORKDL

plt.style.use("rkdl.figures")
rng = np.random.default_rng(0)
NOISE = 0.15
time = np.linspace(0.0, 1.0, 96)


def beats(count):
    """Beats with a sharp peak, a slow wave and, in some, an early extra peak, at random positions and widths."""

    def bump(centre, width, height):
        return height[:, None] * np.exp(-0.5 * ((time - centre[:, None]) / width[:, None]) ** 2)

    centre = rng.uniform(0.25, 0.6, count)
    peak = bump(centre, rng.uniform(0.012, 0.02, count), rng.uniform(0.8, 1.2, count))
    wave = bump(centre + rng.uniform(0.2, 0.3, count), rng.uniform(0.04, 0.06, count), rng.uniform(0.25, 0.45, count))
    extra = bump(centre - 0.2, np.full(count, 0.015), 0.5 * (rng.random(count) < 0.2))
    return peak + wave + extra


truth, new_truth = beats(3000), beats(500)
noisy, new_noisy = (signals + NOISE * rng.standard_normal(signals.shape) for signals in (truth, new_truth))

# %%
# All methods are trained on noisy beats and tested on new noisy beats.
settings = {"n_components": 100, "n_nonzero_coefs": 4, "random_state": 0}
kernel = ORKDL(n_kernel_vectors=100, max_iter=5, fit_inverse_transform=True, **settings).fit(noisy)
linear = DL(**settings).fit(noisy)
candidates = [PCA(k).fit(noisy) for k in range(2, 60)]
cleaned = {
    "PCA": min(
        (model.inverse_transform(model.transform(new_noisy)) for model in candidates),
        key=lambda signals: np.mean((signals - new_truth) ** 2),
    ),
    "DL": linear.denoise(new_noisy),
    "ORKDL": kernel.denoise(new_noisy),
}
print(f"noisy: mean squared error {np.mean((new_noisy - new_truth) ** 2):.5f}")
for name, signals in cleaned.items():
    print(f"{name}: mean squared error {np.mean((signals - new_truth) ** 2):.5f}")

# %%
# The figure shows four of the new beats. Some have an early extra peak, which PCA blurs because it uses the same
# directions for all beats.
with_extra = np.flatnonzero(new_truth[:, time < 0.2].max(axis=1) > 0.3)
numbers = [0, *with_extra[1:4]]
figure, panels = plt.subplots(2, 2, figsize=(9.5, 4.8), sharex=True, sharey=True)
for panel, number in zip(panels.ravel(), numbers, strict=True):
    panel.plot(time, new_noisy[number], color="0.75", linewidth=1, label="noisy")
    panel.plot(time, new_truth[number], color="black", linewidth=1, linestyle=":", label="truth")
    for name in ("PCA", "ORKDL"):
        panel.plot(time, cleaned[name][number], label=name, color={"PCA": "C1", "ORKDL": "C0"}[name])
panels[0, 1].legend(ncols=2)
for panel in panels[1]:
    panel.set_xlabel("seconds")
plt.show()
