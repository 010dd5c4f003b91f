"""
Fit a file with checkpoints
===========================

A memory map is read chunk by chunk, so signals need not fit in memory. With ``checkpoint``, the state of a fit is
written to a file after every iteration. In this example, a fit stops halfway, as if the machine had failed, and is then
resumed. The result is bitwise identical to that of an uninterrupted fit.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import rkdl

plt.style.use("rkdl.figures")
folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)

# %%
# The file contains a hundred thousand waveforms of 64 samples: chirps of random frequency, phase and rate in a Gaussian
# window.
count, length = 100_000, 64
time = np.linspace(-1.0, 1.0, length, dtype=np.float32)
signals = np.lib.format.open_memmap(folder / "signals.npy", mode="w+", dtype=np.float32, shape=(count, length))
for start in range(0, count, 10_000):
    frequency, rate, phase = rng.uniform((4, -6, 0), (16, 6, 2 * np.pi), (10_000, 3)).T[:, :, None]
    waves = np.cos(frequency * time + rate * time**2 + phase) * np.exp(-3.0 * time**2)
    signals[start : start + 10_000] = waves + 0.05 * rng.standard_normal(waves.shape)
signals.flush()

# %%
# The file is opened as a memory map. The fit stops after four iterations and is then resumed up to eight.
X = np.load(folder / "signals.npy", mmap_mode="r")
settings = {"n_components": 40, "n_kernel_vectors": 60, "n_nonzero_coefs": 4, "tol": 0, "random_state": 0}
rkdl.RKDL(max_iter=4, **settings).fit(X, checkpoint=folder / "fit.rkdl")
resumed = rkdl.RKDL(max_iter=8, **settings).fit(X, checkpoint=folder / "fit.rkdl")
uninterrupted = rkdl.RKDL(max_iter=8, **settings).fit(X)
print("bitwise identical:", np.array_equal(resumed.dual_components_, uninterrupted.dual_components_))

# %%
# The fitted model is small, and loading its file executes no code from it.
resumed.save(folder / "model.rkdl")
model = rkdl.load(folder / "model.rkdl")
print(f"signals {X.nbytes / 1e6:.0f} MB, model {(folder / 'model.rkdl').stat().st_size / 1e6:.2f} MB")

# %%
# The figure shows some of the kernel vectors and the errors of both fits.
figure = plt.figure(figsize=(9.5, 3.4))
left, right = figure.subfigures(1, 2, width_ratios=(1.5, 1.0))
for panel, vector in zip(left.subplots(4, 6, sharex=True, sharey=True).ravel(), model.kernel_vectors_, strict=False):
    panel.plot(time, vector, linewidth=1.2)
    panel.axis("off")
left.suptitle("kernel vectors", fontsize=11)
panel = right.subplots()
panel.plot(np.arange(1, 9), uninterrupted.errors_, linewidth=5, alpha=0.35, label="uninterrupted")
panel.plot(np.arange(1, 9), resumed.errors_, marker="o", label="stopped after 4, resumed")
panel.set(xlabel="iteration", ylabel="error")
panel.legend()
plt.show()
