"""load: from a bundle on disk to a callable on torch tensors, after its self-test passed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ptxgen.bundle import selftest
from ptxgen.bundle.backend import Backend, CudaBackend
from ptxgen.bundle.manifest import Bucket, Manifest
from ptxgen.bundle.verify import check_device, verify
from ptxgen.dequantize.rule import serves
from ptxgen.errors import BundleError, DriverError
from ptxgen.paths import user_path
from ptxgen.problem import Problem
from ptxgen.source import LaunchPlan
from ptxgen.weights.pack import pack
from ptxgen.weights.quantize import QuantizedWeight


@dataclass(frozen=True, slots=True)
class BundleKernel:
    """A loaded bundle: y = kernel(x, packed), whatever the batch.

    Attributes:
        manifest: of the bundle.
        device: the device it is loaded on.
    """

    manifest: Manifest
    _backend: Backend
    _kernels: dict[int, Any]
    _dequantizer: Any = None

    @property
    def problem(self) -> Problem:
        return self.manifest.problem

    @property
    def device(self) -> torch.device:
        return self._backend.device

    def __call__(
        self,
        x: Tensor,
        packed: Tensor,
        bias: Tensor | None = None,
        out: Tensor | None = None,
        *,
        chained: bool = False,
    ) -> Tensor:
        """y[..., N] = x[..., K] @ W^T (+ bias), on the current stream of x's device.

        Args:
            x: [..., K] in the problem's dtype, any row stride and offset; the leading dimensions'
                product is the batch, 0 gives an empty result.
            packed: the packed weight, uint8, from ptxgen.weights.pack.
            bias: [N] where the problem has one.
            out: [..., N] to write to; allocated where it is None.
            chained: let the kernel start while the one before it in the stream still runs
                (programmatic dependent launch), where it can.

        Where the finals found it faster, dequantize + matmul computes the batch instead of the
        bucket's kernel; for that 2 N K bytes are kept on the device for each stream.

        Raises:
            TensorError: a tensor does not fit the problem.
        """
        m = x.shape[:-1].numel()
        bucket = self.manifest.bucket_for(m)
        if self.dequantizes(m):
            return self._run_dequantized(x, packed, bias, out)
        return self._run(bucket, x, packed, bias, out, chained)

    def dequantizes(self, m: int) -> bool:
        """Whether a batch of m goes by way of the dense weight: measured faster, near this m."""
        bucket = self.manifest.bucket_for(m)
        timed = bucket.measurement
        return bucket.dequantize_first and timed is not None and serves(m, timed.m)

    def _run(  # noqa: PLR0917
        self,
        bucket: Bucket,
        x: Tensor,
        packed: Tensor,
        bias: Tensor | None,
        out: Tensor | None,
        chained: bool = False,
    ) -> Tensor:
        """By the bucket's own kernel, whatever the batch."""
        kernel = self._kernels[bucket.m_max]
        return self._backend.run(
            kernel, self.problem, x=x, packed=packed, bias=bias, out=out, chained=chained
        )

    def _run_dequantized(
        self, x: Tensor, packed: Tensor, bias: Tensor | None, out: Tensor | None
    ) -> Tensor:
        """By way of the dense weight, whatever the batch."""
        return self._backend.run_dequantized(
            self._dequantizer, self.problem, x=x, packed=packed, bias=bias, out=out
        )


def load(
    path: Path | str,
    device: torch.device | str | int | None = None,
    backend: Backend | None = None,
) -> BundleKernel:
    """Loads a bundle: checks its files and the device, then tests every kernel.

    Args:
        path: folder of the bundle.
        device: CUDA device; the current one where it is None.
        backend: runs the kernels; the CUDA device where it is None.

    Raises:
        BundleError: damaged, tampered with, for another GPU, or the self-test failed; says which.
    """
    folder = user_path(path, "the bundle")
    manifest = verify(folder)
    used = CudaBackend(device) if backend is None else backend
    facts = used.facts()
    check_device(manifest, facts.name, facts.capability, facts.smem_per_cta)
    kernels = {
        b.m_max: _load_cubin(folder, b.files["cubin"], manifest.entry, b.plan, manifest, used)
        for b in manifest.buckets
    }
    dense = manifest.unpacking
    dequantizer = (
        None
        if dense is None
        else _load_cubin(folder, dense.files["cubin"], dense.entry, dense.plan, manifest, used)
    )
    kernel = BundleKernel(manifest, used, kernels, dequantizer)
    _run_self_test(kernel, _expected_rows(folder, manifest))
    return kernel


def _load_cubin(  # noqa: PLR0917
    folder: Path, name: str, entry: str, plan: LaunchPlan, manifest: Manifest, backend: Backend
) -> Any:
    try:
        return backend.load((folder / name).read_bytes(), entry, plan)
    except DriverError as error:
        raise BundleError(
            f"the driver refused {name} of the bundle {folder}: {error} "
            f"It was made for {manifest.arch} by NVRTC {manifest.toolchain.nvrtc}; update the "
            f"driver, or export the bundle again on this machine."
        ) from None


def _expected_rows(folder: Path, manifest: Manifest) -> Tensor:
    """The expected output of the distinct rows, FP32 [rows, N], on the CPU."""
    test, n = manifest.self_test, manifest.problem.n
    values = np.fromfile(folder / test.file, dtype="<f4")
    if values.size != test.rows * n or test.rows != selftest.ROWS:
        raise BundleError(
            f"{test.file} of the bundle {folder} holds {values.size} values for {test.rows} rows "
            f"of {n}; this ptxtune tests {selftest.ROWS} rows. Export the bundle again."
        )
    return torch.from_numpy(values.reshape(test.rows, n))


def _run_self_test(kernel: BundleKernel, rows: Tensor) -> None:
    """Raises BundleError where an output of any kernel is not the expected one."""
    test, device = selftest.self_test(kernel.problem), kernel.device
    packed = pack(_moved(test.weight, device), kernel.problem)
    bias = None if test.bias is None else test.bias.to(device)
    rows = rows.to(device)
    for bucket in kernel.manifest.buckets:
        ways: dict[str, Callable[[Tensor, Tensor, Tensor | None, Tensor], Tensor]] = {
            f"the kernel for batches up to {bucket.m_max}": partial(kernel._run, bucket)
        }
        if bucket.dequantize_first:
            ways["dequantize + matmul"] = kernel._run_dequantized
        m = bucket.self_test_m
        x = test.batch(m).to(device)
        for name, run in ways.items():
            out = torch.full((m, kernel.problem.n), torch.nan, dtype=x.dtype, device=device)
            y = run(x, packed, bias, out)
            excess = selftest.worst_excess(y, rows, kernel.manifest.self_test)
            if not excess <= 0:
                raise BundleError(
                    f"the self-test failed: {name} gave a wrong result at M = {m} on "
                    f"{kernel.device} (beyond the tolerance by {excess:g}). Do not use this "
                    f"bundle; tune and export again on this GPU."
                )


def _moved(weight: QuantizedWeight, device: torch.device) -> QuantizedWeight:
    zeros = None if weight.zeros is None else weight.zeros.to(device)
    return QuantizedWeight(weight.q.to(device), weight.scales.to(device), zeros)
