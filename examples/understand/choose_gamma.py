"""
Choose gamma with a grid search
===============================

``gamma`` cannot be chosen by the error in feature space: as gamma tends to zero, all signals are mapped to the same
point there, and every dictionary represents them perfectly. Choose it by the performance on a task, such as the
classification of breast tumours in this example, or by ``score``, which measures what is lost when codes are turned
back into signals. Grid searches over ``gamma`` are compared with the default, ``"median"``.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rkdl import RKDL, KDLClassifier

plt.style.use("rkdl.figures")
X, y = load_breast_cancer(return_X_y=True)

# %%
# The features have different units, so they are standardised. gamma is searched on a logarithmic grid around the
# median.
method = RKDL(n_components=20, n_kernel_vectors=100, max_iter=5, fit_inverse_transform=True)
model = make_pipeline(StandardScaler(), KDLClassifier(random_state=0))
median = model.fit(X, y)[-1].gamma_
gammas = median * 10.0 ** np.arange(-3.0, 1.5, 0.5)
folds = StratifiedKFold(5, shuffle=True, random_state=0)
search = GridSearchCV(model, {"kdlclassifier__gamma": gammas}, cv=folds).fit(X, y)
best = search.best_params_["kdlclassifier__gamma"]
print(f"median {median:.4f}, best {best:.4f}, accuracy {search.best_score_:.1%}")

# %%
# The left panel shows the accuracy with its standard error. Up to the median, the differences are within chance; beyond
# it, the kernel is too narrow. The right panel shows the score, the fraction of the signals' energy that is kept when
# codes of 4 atoms are turned back into signals. It prefers wider kernels than the classifier does.
accuracy = search.cv_results_["mean_test_score"]
spread = search.cv_results_["std_test_score"] / np.sqrt(folds.get_n_splits())
scaled = StandardScaler().fit_transform(X)
scores = [method.set_params(gamma=gamma, random_state=0).fit(scaled).score(scaled) for gamma in gammas]

figure, panels = plt.subplots(1, 2, figsize=(9.0, 3.4), sharex=True)
panels[0].errorbar(gammas, accuracy, spread, marker="o", capsize=3)
panels[0].set(ylabel="cross-validated accuracy")
panels[1].plot(gammas, scores, marker="o", color="C1")
panels[1].set(ylabel="score")
for panel in panels:
    panel.axvline(median, color="0.4", linestyle=":")
    panel.text(median, panel.get_ylim()[0], " median", color="0.3", va="bottom")
    panel.set(xscale="log", xlabel="gamma")
plt.show()
