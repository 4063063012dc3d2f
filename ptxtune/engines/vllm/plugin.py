"""register: what vLLM calls in every process; puts our kernel before its own."""

from __future__ import annotations

import logging
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ptxgen.env import VLLM, vllm_wanted
from ptxtune.engines.vllm.versions import known_version, unknown_text

LOG = logging.getLogger("vllm.ptxtune")
"""Below vLLM's own logger, so that its handlers and levels apply."""


def register() -> None:
    """Makes PtxtuneLinearKernel vLLM's first choice on CUDA. Any number of calls do it once.

    Never raises: where it cannot be done, one line says why, and vLLM's own kernels serve.
    """
    if not vllm_wanted():
        LOG.info("ptxtune: off by %s; vLLM's own kernels serve", VLLM.name)
        return
    found = _installed()
    if known_version(found) is None:
        LOG.warning("%s", unknown_text(found))
        return
    try:
        _put_first()
    except Exception as error:  # serving must go on, whatever this vLLM has changed
        LOG.warning(
            "ptxtune: vLLM %s does not take our kernel (%s: %s); its own kernels serve",
            found,
            type(error).__name__,
            error,
        )


def _installed() -> str:
    try:
        return version("vllm")
    except PackageNotFoundError:
        return ""


def _put_first() -> None:
    # Imported here: importing ptxtune must not import vLLM.
    from vllm.model_executor.kernels import linear  # noqa: PLC0415
    from vllm.platforms import PlatformEnum  # noqa: PLC0415

    from ptxtune.engines.vllm.kernel import PtxtuneLinearKernel  # noqa: PLC0415

    kernels: list[Any] = linear._POSSIBLE_KERNELS[PlatformEnum.CUDA]
    if PtxtuneLinearKernel in kernels:
        return
    # register_linear_kernel appends, behind Machete and Marlin, which would then be chosen.
    kernels.insert(0, PtxtuneLinearKernel)
