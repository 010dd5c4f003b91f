"""What KDL, RKDL, ORKDL and MORKDL share: the kernel and the attributes of atoms in its feature space."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rkdl._coding.encoder import Pursuit
from rkdl._estimators.fitting import as_fitted
from rkdl._estimators.learner import Learner, fit_decoder, forget_decoder
from rkdl._features.kernels import Kernel, as_kernel
from rkdl._learning.feature_choice import FeatureChoice, KernelFeatures
from rkdl._learning.kernel_vector_choice import DICTIONARY_NONZEROS


@dataclass(eq=False, repr=False, kw_only=True)
class KernelLearner(Learner):
    """Base of the kernel methods, whose atoms are linear combinations of kernel vectors in feature space."""

    kernel: str | Callable = "rbf"
    gamma: float | str = "median"
    degree: int = 3
    coef0: float = 1.0
    fit_inverse_transform: bool = False
    decoder_alpha: float = 1e-3

    _parts = ("dual_components_", "gram_", "kernel_vectors_", "gamma_", "decoder_", "decoder_intercept_")

    @property
    def kernel_(self) -> Kernel:
        """The kernel with the numbers that were found for its parameters."""
        gamma = vars(self).get("gamma_")
        if gamma is None:
            raise AttributeError(
                f"{type(self).__name__} has no kernel_: it is not fitted, or the kernel is precomputed."
            )
        model = as_fitted(self)
        return as_kernel(model.kernel, gamma, model.degree, model.coef0)._resolved(gamma)

    def _features(self) -> FeatureChoice:
        parameters: Any = self
        vectors = parameters.kernel_vectors
        count = parameters.n_kernel_vectors if isinstance(vectors, str) else np.shape(vectors)[0]
        n_nonzero = getattr(self, "linear_n_nonzero_coefs", DICTIONARY_NONZEROS)
        pursuit = Pursuit(min(n_nonzero, count), ols=self.pursuit == "ols")
        return KernelFeatures(self.kernel, self.gamma, self.degree, self.coef0, vectors, pursuit, count)

    fit_decoder = fit_decoder
    forget_decoder = forget_decoder
