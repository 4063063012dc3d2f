"""A converted checkpoint: packed weights mapped from its files, ready for the kernels."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import TracebackType

import torch
from torch import Tensor

from ptxgen.checkpoint.manifest import ConvertedManifest, PackedLayer, read_manifest
from ptxgen.checkpoint.tensors import TensorFiles
from ptxgen.errors import CheckpointError
from ptxgen.weights.pack import check_packed
from ptxgen.weights.quantize import TORCH_DTYPES


class PackedCheckpoint:
    """What `ptxtune convert` wrote, open for reading; a context manager.

    Attributes:
        manifest: its layers and what they are.
        files: all tensors, also those that are no packed weights.
    """

    def __init__(self, folder: Path | str) -> None:
        """Reads manifest and headers.

        Raises:
            CheckpointError: no such checkpoint, or a tensor that the manifest names and that is
                missing or of another size.
        """
        path = Path(folder).expanduser()
        self.manifest: ConvertedManifest = read_manifest(path)
        self.files = TensorFiles(path)
        try:
            for layer in self.manifest.layers.values():
                self._check(layer)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> PackedCheckpoint:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the files; tensors that were loaded stay valid."""
        self.files.close()

    def load(
        self, name: str, device: str = "cpu", verify: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """A layer's packed weight and its bias.

        On the CPU the weight is a view of the mapped file; nothing is repacked on any device.

        Args:
            name: of a layer of the manifest.
            device: where the tensors go.
            verify: compare the weight with the digest of the manifest, which reads all of it.

        Returns:
            uint8 [packed_layout(problem).total_bytes] and [N] in the problem's dtype, or None.

        Raises:
            CheckpointError: no such layer, or a weight that is not what was written.
        """
        layer = self.manifest.layers.get(name)
        if layer is None:
            raise CheckpointError(
                f"{self.files.folder} has no packed layer {name!r}; it has "
                f"{len(self.manifest.layers)}, such as {next(iter(self.manifest.layers), 'none')}."
            )
        packed = self.files.read(layer.tensor)
        if verify and digest_of(packed) != layer.sha256:
            raise CheckpointError(
                f"the packed weight of {name} in {self.files.folder} is not what was written; "
                f"copy the checkpoint again, or convert it again."
            )
        check_packed(packed, layer.problem)
        bias = self.files.read(layer.bias_tensor, device) if layer.problem.bias else None
        return packed.to(device), bias

    def _check(self, layer: PackedLayer) -> None:
        info = self.files.get(layer.tensor)
        if info is None or (info.dtype, info.shape) != ("U8", (layer.num_bytes,)):
            found = info.words() if info else "nothing"
            raise CheckpointError(
                f"layer {layer.name} of {self.files.folder} should be U8 [{layer.num_bytes}] for "
                f"{layer.problem.key()}, and the files hold {found}; convert it again."
            )
        bias = self.files.get(layer.bias_tensor)
        wanted = "F16" if TORCH_DTYPES[layer.problem.dtype] == torch.float16 else "BF16"
        if layer.problem.bias and (
            bias is None or (bias.dtype, bias.shape) != (wanted, (layer.problem.n,))
        ):
            raise CheckpointError(
                f"layer {layer.name} of {self.files.folder} should have a bias {wanted} "
                f"[{layer.problem.n}]; convert it again."
            )


def digest_of(packed: Tensor) -> str:
    """SHA-256 of a packed weight on the CPU."""
    return hashlib.sha256(packed.numpy().data).hexdigest()
