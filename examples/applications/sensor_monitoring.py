"""
Monitor a machine by its vibrations
===================================

An accelerometer monitors a bearing. Each second of the recording is one signal, the power spectrum of the vibrations in
decibels. A kernel dictionary is learned while the machine is healthy, at all its speeds and loads. When a fault
develops, the residual increases, whereas the loudness mainly follows the load. The recording is generated.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.signal import welch

from rkdl import ORKDL

plt.style.use("rkdl.figures")
rng = np.random.default_rng(0)
RATE = 1024
SECONDS = 1200
FAULT = 800

# %%
# The recording contains twenty minutes at varying speed and load, with harmonics of the rotation and noise. After 800
# seconds, a small defect begins to strike 5.4 times per revolution and makes the housing ring at 310 Hz, weakly at
# first and then more strongly.
time = np.arange(RATE) / RATE
seconds = np.arange(SECONDS)
speed = 18.0 + 5.0 * np.sin(2 * np.pi * seconds / 173.0) + 2.0 * np.sin(2 * np.pi * seconds / 47.0)
load = 1.0 + 0.25 * np.sin(2 * np.pi * seconds / 311.0) + 0.1 * np.sin(2 * np.pi * seconds / 29.0)
strength = np.clip((seconds - FAULT) / 400.0, 0.0, 1.0)


def second(frequency, amplitude, defect):
    """Accelerations during one second."""
    phases = rng.uniform(0, 2 * np.pi, 4)
    turning = sum(
        np.cos(2 * np.pi * k * frequency * time + phase) / k for k, phase in zip((1, 2, 3, 5), phases, strict=True)
    )
    strikes = np.cos(2 * np.pi * 5.4 * frequency * time + rng.uniform(0, 2 * np.pi)) ** 31
    ringing = np.cos(2 * np.pi * 310.0 * time)
    return amplitude * turning + 0.5 * rng.standard_normal(RATE) + 1.5 * defect * strikes * (1.0 + ringing)


recording = np.array([second(*state) for state in zip(speed, load, strength, strict=True)])
frequencies, spectra = welch(recording, RATE, nperseg=256)
X = 10.0 * np.log10(spectra[:, 1:110])

# %%
# The dictionary is learned from the first ten minutes. The alarm threshold is the 99 % quantile of the residuals in the
# following three minutes, which are not part of the training data.
model = ORKDL(n_components=40, n_kernel_vectors=60, n_nonzero_coefs=6, random_state=0).fit(X[:600])
residuals = model.reconstruction_error(X)
threshold = np.quantile(residuals[600:780], 0.99)
smooth = np.convolve(residuals, np.ones(15) / 15, mode="same")
smooth[:7] = smooth[-7:] = np.nan
loudness = np.sqrt(np.mean(recording**2, axis=1))
alarm = np.flatnonzero(smooth > threshold)
alarm = alarm[alarm > FAULT][0]
print(f"alarm {alarm - FAULT} seconds after the defect began, at {strength[alarm]:.0%} of its final strength")

figure, panels = plt.subplots(3, 1, figsize=(9.0, 6.2), sharex=True, height_ratios=(1.5, 0.8, 1.2))
panels[0].imshow(X.T, aspect="auto", origin="lower", extent=(0, SECONDS, 4, 436), interpolation="none")
panels[0].set(ylabel="frequency, Hz", title="power spectra of each second")
panels[1].plot(loudness, linewidth=0.8)
panels[1].set(ylabel="loudness")
panels[2].plot(residuals, linewidth=0.5, color="0.7", label="each second")
panels[2].plot(smooth, color="C0", label="mean of 15 seconds")
panels[2].axhline(threshold, color="C1", linestyle=":", label="threshold")
panels[2].set(ylabel="residual", xlabel="second")
panels[2].legend(loc="upper left", ncols=3)
for panel in panels:
    panel.axvline(600, color="0.3", linestyle="--", linewidth=1)
    panel.axvline(FAULT, color="C1", linewidth=1)
panels[2].text(595, residuals.min(), "end of training", ha="right", va="bottom", fontsize=9)
panels[2].text(FAULT + 5, residuals.min(), "defect begins", ha="left", va="bottom", fontsize=9, color="C1")
plt.show()
