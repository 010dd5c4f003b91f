"""
Choosing gamma with a grid search
=================================

The error cannot choose ``gamma``: as gamma tends to zero, all signals move to the same point of feature space and every
dictionary represents them perfectly. A task can. Here the task is classification of breast tumours, the parameter is
searched like any other, as ``estimator__gamma``, and the default ``"median"`` is compared with the result.
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
# Features have different units, so they are standardised; gamma is searched on a logarithmic grid around the median.
method = RKDL(n_components=20, n_nonzero_coefs=4, n_kernel_vectors=100, kernel_vectors="random", max_iter=5)
model = make_pipeline(StandardScaler(), KDLClassifier(method, random_state=0))
median = model.fit(X, y)[-1].gamma_
gammas = median * 10.0 ** np.arange(-3.0, 1.5, 0.5)
folds = StratifiedKFold(5, shuffle=True, random_state=0)
search = GridSearchCV(model, {"kdlclassifier__estimator__gamma": gammas}, cv=folds).fit(X, y)
best = search.best_params_["kdlclassifier__estimator__gamma"]
print(f"median {median:.4f}, best {best:.4f}, accuracy {search.best_score_:.1%}")

# %%
# Left: accuracy, with one standard error. Up to the median the differences are within chance; beyond it the kernel is
# too narrow. Right: the share of the signals that a dictionary represents. It only ever grows as gamma becomes smaller,
# so it cannot tell a good gamma from one at which all signals look alike.
accuracy = search.cv_results_["mean_test_score"]
spread = search.cv_results_["std_test_score"] / np.sqrt(folds.get_n_splits())
scaled = StandardScaler().fit_transform(X)
shares = [method.set_params(gamma=gamma, random_state=0).fit(scaled).score(scaled) for gamma in gammas]

figure, panels = plt.subplots(1, 2, figsize=(9.0, 3.4), sharex=True)
panels[0].errorbar(gammas, accuracy, spread, marker="o", capsize=3)
panels[0].set(ylabel="cross-validated accuracy")
panels[1].plot(gammas, shares, marker="o", color="C1")
panels[1].set(ylabel="share represented")
for panel in panels:
    panel.axvline(median, color="0.4", linestyle=":")
    panel.text(median, panel.get_ylim()[0], " median", color="0.3", va="bottom")
    panel.set(xscale="log", xlabel="gamma")
plt.show()
