"""Kernel-vector updates: the kernel vectors move, codes fixed."""

from rkdl._learning.kernel_vector_updates.base import KernelVectorUpdate, Objective, PastSignals, Point
from rkdl._learning.kernel_vector_updates.gradient_descent import GradientDescent
from rkdl._learning.kernel_vector_updates.variable_projection import VariableProjection

__all__ = [
    "GradientDescent",
    "KernelVectorUpdate",
    "Objective",
    "PastSignals",
    "Point",
    "VariableProjection",
]
