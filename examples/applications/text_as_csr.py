"""
Classify text in CSR format
===========================

TF-IDF turns documents into sparse vectors of word weights. Estimators accept the CSR matrix directly, and skip its
zeros in products. The corpus consists of the docstrings of seven SciPy modules. A classifier predicts the module that a
function belongs to, and a dictionary finds topics.
"""

import importlib
import inspect

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.model_selection import train_test_split

from rkdl import ORKDL, KDLClassifier

plt.style.use("rkdl.figures")
modules = ["fft", "interpolate", "linalg", "ndimage", "optimize", "signal", "stats"]
documents, labels = [], []
for name in modules:
    module = importlib.import_module(f"scipy.{name}")
    for public in sorted(module.__all__):
        text = inspect.getdoc(getattr(module, public)) or ""
        if len(text) > 600:
            # The name of the module itself would give the answer away.
            documents.append(text.replace(f"scipy.{name}", "").replace(name, ""))
            labels.append(name)
labels = np.array(labels)

# %%
# TF-IDF represents each document as a vector of unit norm with one weight per word, nearly all of them zero.
vectorizer = TfidfVectorizer(max_features=3000, stop_words="english", token_pattern=r"[a-z]{3,}", sublinear_tf=True)
X = vectorizer.fit_transform(documents)
print(f"{X.shape[0]} documents, {X.shape[1]} words, {X.nnz / np.prod(X.shape):.1%} of the weights are not zero")

# %%
# The classifier learns kernel vectors, and one dictionary per module on them.
train, test = train_test_split(np.arange(len(labels)), test_size=0.4, random_state=0, stratify=labels)
classifier = KDLClassifier(random_state=0).fit(X[train], labels[train])
print(f"{classifier.score(X[test], labels[test]):.1%} of {len(test)} documents are assigned to the right module")

figure, panel = plt.subplots(figsize=(5.4, 4.6))
predicted = classifier.predict(X[test])
ConfusionMatrixDisplay.from_predictions(labels[test], predicted, ax=panel, cmap="Blues", colorbar=False)
panel.tick_params(axis="x", rotation=45)
panel.spines[:].set_visible(True)
plt.show()

# %%
# Without labels, the atoms of a kernel dictionary can be interpreted as topics. For each atom, the figure shows in
# which modules it is used and which words are characteristic of the documents that use it.
model = ORKDL(n_components=12, n_kernel_vectors=30, n_nonzero_coefs=2, max_iter=5, random_state=0).fit(X)
codes = np.abs(model.transform(X))
usage = np.array([codes[labels == name].mean(axis=0) for name in modules])
words = vectorizer.get_feature_names_out()
mean = np.asarray(X.mean(axis=0)).ravel()
titles = []
for atom in codes.T:
    weights = np.asarray((X.T @ atom) / (atom.sum() + 1e-12)).ravel() - mean
    titles.append(" ".join(words[np.argsort(-weights)[:4]]))

order = np.argsort(usage.argmax(axis=0), kind="stable")
figure, panel = plt.subplots(figsize=(8.0, 4.2))
image = panel.imshow(usage.T[order], aspect="auto", cmap="Blues")
panel.set_xticks(range(len(modules)), modules)
panel.set_yticks(range(len(order)), [titles[j] for j in order])
panel.set(title="mean weight of each atom, and the words of the documents that use it")
figure.colorbar(image)
plt.show()
