"""Backend: what loading a bundle asks of a device, and the CUDA one. A fake needs no GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ptxgen.errors import BundleError
from ptxgen.problem import Problem
from ptxgen.source import LaunchPlan


@dataclass(frozen=True, slots=True)
class BackendFacts:
    """The device's name, compute capability and opt-in shared memory of a CTA in bytes."""

    name: str
    capability: tuple[int, int]
    smem_per_cta: int


class Backend(Protocol):
    """One device that loads cubins and runs them on torch tensors.

    Attributes:
        device: where tensors must lie.
    """

    device: torch.device

    def facts(self) -> BackendFacts:
        """Identity and limits of the device."""
        ...

    def load(self, cubin: bytes, entry: str, plan: LaunchPlan) -> Any:
        """A loaded kernel, to be passed to run. Raises DriverError where the driver refuses it."""
        ...

    def run(
        self,
        kernel: Any,
        problem: Problem,
        *,
        x: Tensor,
        packed: Tensor,
        bias: Tensor | None,
        out: Tensor | None,
        chained: bool,
    ) -> Tensor:
        """y[..., N] of a loaded kernel. Raises TensorError where a tensor does not fit."""
        ...

    def run_dequantized(
        self,
        kernel: Any,
        problem: Problem,
        *,
        x: Tensor,
        packed: Tensor,
        bias: Tensor | None,
        out: Tensor | None,
    ) -> Tensor:
        """y[..., N] by way of the dense weight, which a loaded dequantize kernel writes.

        Raises TensorError where a tensor does not fit.
        """
        ...


class CudaBackend:
    """A CUDA device, through ptxgen.launch."""

    def __init__(self, device: torch.device | str | int | None = None) -> None:
        """Makes the device's context.

        Raises:
            BundleError: there is no such CUDA device.
        """
        # Deferred: the driver bindings are slow to import, and verifying a bundle needs no driver.
        from ptxgen import device as driver  # noqa: PLC0415
        from ptxgen import launch  # noqa: PLC0415
        from ptxgen.dequantize import product  # noqa: PLC0415

        self._driver, self._launch, self._product = driver, launch, product
        self.device = _cuda_device(device)
        self._workspaces = launch.WorkspacePool()
        self._dense = product.DenseWeights()
        torch.cuda.synchronize(self.device)  # creates the context

    def facts(self) -> BackendFacts:
        facts = self._driver.device_facts(self.device.index)
        return BackendFacts(facts.name, facts.capability, facts.smem_optin_bytes)

    def load(self, cubin: bytes, entry: str, plan: LaunchPlan) -> Any:
        with torch.cuda.device(self.device):
            return self._driver.LoadedKernel(cubin, entry, plan)

    def run(
        self,
        kernel: Any,
        problem: Problem,
        *,
        x: Tensor,
        packed: Tensor,
        bias: Tensor | None,
        out: Tensor | None,
        chained: bool,
    ) -> Tensor:
        return self._launch.run(
            kernel, problem, x, packed, bias, out, workspaces=self._workspaces, chained=chained
        )

    def run_dequantized(
        self,
        kernel: Any,
        problem: Problem,
        *,
        x: Tensor,
        packed: Tensor,
        bias: Tensor | None,
        out: Tensor | None,
    ) -> Tensor:
        self._launch.check_tensors(problem, x, packed, bias, out)
        stream = torch.cuda.current_stream(x.device).cuda_stream
        dense = self._dense.of(problem, x.device, stream)
        return self._product.run_dequantized(kernel, problem, x, packed, bias, out, dense=dense)


def _cuda_device(device: torch.device | str | int | None) -> torch.device:
    if not torch.cuda.is_available():
        raise BundleError(
            "no CUDA device can be used here (torch.cuda.is_available() is false), so the bundle "
            "cannot be run; `ptxtune doctor` says why. Its files can be checked without one."
        )
    count = torch.cuda.device_count()
    try:
        wanted = (
            torch.device("cuda", device)
            if isinstance(device, int)
            else torch.device(device or "cuda")
        )
    except RuntimeError:  # torch's own words for what is no device
        raise BundleError(
            f"device {device!r} is no device; name a CUDA device, such as cuda:0 or 0."
        ) from None
    index = torch.cuda.current_device() if wanted.index is None else wanted.index
    if wanted.type != "cuda" or not 0 <= index < count:
        raise BundleError(f"device {device} is not one of the {count} CUDA devices 0..{count - 1}.")
    return torch.device("cuda", index)
