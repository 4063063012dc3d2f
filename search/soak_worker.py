"""The evaluator of real kernels in a soak: the GPU's own, which notes its process beforehand.

Imported inside the worker process alone, because it needs torch.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from search import gpu_evaluator
from search.fake_parts import FaultLog


def create(options: dict[str, Any]) -> gpu_evaluator.GpuEvaluator:
    """Factory for search.worker: the options of search.gpu_evaluator:create, and "folder"."""
    FaultLog(Path(options["folder"]) / "workers.log").add(str(os.getpid()))
    return gpu_evaluator.create(options)
