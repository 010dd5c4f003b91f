"""
Outliers in a table with categories and missing values
======================================================

Real tables have categories, missing values and columns in different units. scikit-learn's ``ColumnTransformer`` turns
such a table into numbers, and :class:`~rkdl.KDLOutlierDetector` is the last step of the pipeline. The table in this
example is generated. It contains flats whose rent depends on size, district and age. In a few rows the rent is wrong,
although each of their values is common, so the error cannot be found by looking at single columns.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from rkdl import KDLOutlierDetector

plt.style.use("rkdl.figures")
rng = np.random.default_rng(0)
n = 800
district = rng.choice(["centre", "north", "harbour", "hills"], n, p=[0.35, 0.3, 0.2, 0.15])
price = pd.Series(district).map({"centre": 21.0, "north": 14.0, "harbour": 17.0, "hills": 19.0}).to_numpy()
size = rng.gamma(9.0, 8.0, n)
year = rng.integers(1900, 2024, n).astype(float)
table = pd.DataFrame(
    {
        "size": size,
        "rooms": np.maximum(1, np.round(size / 25 + rng.normal(0, 0.4, n))),
        "year": year,
        "rent": size * price * (0.8 + 0.4 * (year - 1900) / 124) * rng.lognormal(0.0, 0.06, n),
        "district": district,
        "heating": rng.choice(["gas", "district", "heat pump"], n),
    }
)

# %%
# For fifteen of the more expensive flats, the rent is given per week instead of per month. These rents are common
# values, but do not fit the rest of their rows. In addition, one cell in twenty is missing.
wrong = rng.choice(np.flatnonzero(table["rent"] > table["rent"].median()), 15, replace=False)
table.loc[wrong, "rent"] /= 52 / 12
is_wrong = np.isin(np.arange(n), wrong)
for column in table.columns.drop("rent"):
    table.loc[rng.random(n) < 0.05, column] = np.nan
print(table.head(6).round(1))

# %%
# Rent is proportional to size, so we use the logarithms of both. Missing numbers are imputed from the most similar
# rows. Imputing medians would violate the dependence between columns that the detector looks for, and make incomplete
# rows look like outliers. Categories are one-hot encoded, with an extra category for missing values, and scaled down so
# that they do not dominate the numbers; the detector is told not to scale the columns again.
logarithm = FunctionTransformer(lambda frame: frame.assign(size=np.log(frame["size"]), rent=np.log(frame["rent"])))
numbers = make_pipeline(logarithm, StandardScaler(), KNNImputer(n_neighbors=10))
categories = make_pipeline(SimpleImputer(strategy="constant", fill_value="missing"), OneHotEncoder(sparse_output=False))
prepare = ColumnTransformer(
    [("numbers", numbers, ["size", "rooms", "year", "rent"]), ("categories", categories, ["district", "heating"])],
    transformer_weights={"numbers": 1.0, "categories": 0.5},
)
detector = make_pipeline(prepare, KDLOutlierDetector(contamination=0.05, standardize=False, random_state=0)).fit(table)
scores = -detector.score_samples(table)
flagged = detector.predict(table) == -1
print(f"area under the ROC curve {roc_auc_score(is_wrong, scores):.3f}")
print(f"{flagged.sum()} rows are flagged, among them {(flagged & is_wrong).sum()} of the {len(wrong)} wrong ones")

# %%
# The left panel plots rent against size; rows without a size are not shown. The wrong rents do not stand out along the
# vertical axis. The right panel shows how many of them are found if rows are inspected in the order of their scores.
figure, panels = plt.subplots(1, 2, figsize=(10.0, 3.8), width_ratios=(1.2, 1.0))
panels[0].scatter(table["size"], table["rent"], s=8, color="0.7", label="rows")
rows = table[flagged]
panels[0].scatter(rows["size"], rows["rent"], s=40, facecolor="none", edgecolor="C0", label="flagged")
panels[0].scatter(table["size"][is_wrong], table["rent"][is_wrong], s=14, color="C1", label="wrong")
panels[0].set(xlabel="size, square metres", ylabel="rent")
panels[0].legend()
order = np.argsort(-scores)
panels[1].plot(np.arange(1, n + 1), np.cumsum(is_wrong[order]))
panels[1].plot([1, n], [0, len(wrong)], color="0.6", linestyle=":", label="by chance")
panels[1].set(xlabel="rows inspected, most abnormal first", ylabel="wrong rents found", xscale="log")
panels[1].legend(loc="lower right")
plt.show()

# %%
# Why is a row abnormal? Replace its values one at a time by those of rows that are not flagged, and see how far the
# score decreases. For the most abnormal row, only another rent brings the score near the threshold.
row = table.iloc[[order[0]]]
print(row.round(1).to_string(index=False))
print(f"score {scores[order[0]]:.1f}, threshold {-detector[-1].offset_:.1f}")
for column in table.columns:
    trials = row.loc[row.index.repeat((~flagged).sum())].assign(**{column: table.loc[~flagged, column].to_numpy()})
    trial_scores = -detector.score_samples(trials)
    best = trial_scores.argmin()
    print(f"{column} {trials.round(0)[column].iloc[best]}: score {trial_scores[best]:.1f}")
