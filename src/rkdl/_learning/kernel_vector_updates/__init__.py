"""Kernel-vector updates: the kernel vectors move, codes fixed."""

from rkdl._learning.kernel_vector_updates.base import KernelVectorUpdate as KernelVectorUpdate
from rkdl._learning.kernel_vector_updates.base import Objective as Objective
from rkdl._learning.kernel_vector_updates.base import PastSignals as PastSignals
from rkdl._learning.kernel_vector_updates.gradient_descent import GradientDescent as GradientDescent
from rkdl._learning.kernel_vector_updates.variable_projection import VariableProjection as VariableProjection
