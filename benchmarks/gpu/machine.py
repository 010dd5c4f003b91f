"""The device: timing, profiling, and its measured limits."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

# Substrings of the profiler's names of matrix-product kernels.
PRODUCTS = ("gemm", "gemv", "cutlass", "splitkreduce", "xmma", "nvjet", "_product_kernel", "_split_kernel")


class Machine:
    """A device, with timing and profiling."""

    def __init__(self, name: str, small: bool) -> None:
        self.device = torch.device(name)
        self.small = small
        self.is_gpu = self.device.type == "cuda"

    def wait(self) -> None:
        """Wait until the device has finished all work."""
        if self.is_gpu:
            torch.cuda.synchronize(self.device)

    def seconds(self, work: Callable[[], Any], repeats: int) -> tuple[float, Any]:
        """Shortest of several times, after one warm-up run, and the result."""
        work()
        best, result = np.inf, None
        for _ in range(repeats):
            self.wait()
            start = time.perf_counter()
            result = work()
            self.wait()
            best = min(best, time.perf_counter() - start)
        return best, result

    def describe(self) -> str:
        """Name of the GPU, and versions."""
        if self.is_gpu:
            gpu = torch.cuda.get_device_name(self.device)
            return f"{gpu}, torch {torch.__version__}, CUDA {torch.version.cuda}, Python {platform.python_version()}"
        return f"CPU, torch {torch.__version__}, Python {platform.python_version()}"

    @cache  # noqa: B019
    def bandwidth(self, is_cached: bool = False) -> float:
        """Bytes per second read and written by copies, larger than the L2 cache or small enough to fit in it."""
        source = torch.ones((1 << 22) if self.small or is_cached else (1 << 29), device=self.device)
        target, count = torch.empty_like(source), 100 if is_cached else 1

        def work() -> None:
            for _ in range(count):
                target.copy_(source)

        return 2 * count * source.numel() * 4 / self.seconds(work, 5)[0]

    @cache  # noqa: B019
    def arithmetic(self, dtype: torch.dtype = torch.float32) -> float:
        """Operations per second of a large matrix product, TF32 off."""
        size = 256 if self.small else 8192
        left, right = (torch.randn(size, size, device=self.device).to(dtype) for _ in range(2))
        return 2 * size**3 / self.seconds(lambda: left @ right, 5)[0]

    @cache  # noqa: B019
    def transfer(self) -> float:
        """Bytes per second from pinned host memory."""
        source = torch.ones((1 << 20) if self.small else (1 << 28), pin_memory=self.is_gpu)
        target = torch.empty_like(source, device=self.device)
        return source.numel() * 4 / self.seconds(lambda: target.copy_(source, non_blocking=True), 5)[0]

    @property
    def cache_per_core(self) -> float:
        """Bytes of the L2 cache per multiprocessor."""
        if not self.is_gpu:
            return 1 << 20
        properties = torch.cuda.get_device_properties(self.device)
        return properties.L2_cache_size / properties.multi_processor_count

    def profile(self, work: Callable[[], Any], path: Path) -> float:
        """Seconds that matrix products take on the device; writes the whole profile to a file."""
        from torch.profiler import ProfilerActivity, profile

        kinds = [ProfilerActivity.CUDA] if self.is_gpu else [ProfilerActivity.CPU]
        self.wait()
        start = time.perf_counter()
        with profile(activities=kinds) as record:
            work()
            self.wait()
        events = record.key_averages()
        order = "self_cuda_time_total" if self.is_gpu else "self_cpu_time_total"
        path.write_text(f"{time.perf_counter() - start} s\n" + events.table(sort_by=order, row_limit=40))
        times = {event.key.lower(): event.self_device_time_total or event.self_cpu_time_total for event in events}
        return sum(value for key, value in times.items() if any(part in key for part in PRODUCTS)) / 1e6
