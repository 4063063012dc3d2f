"""The tensors of a folder of safetensors files: listed from the headers, read one by one."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from ptxgen.errors import CheckpointError

INDEX_NAME = "model.safetensors.index.json"
MAX_INDEX_BYTES = 64 << 20
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
ELEMENT_BYTES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "I16": 2,
    "U16": 2,
    "F16": 2,
    "BF16": 2,
    "I32": 4,
    "U32": 4,
    "F32": 4,
    "I64": 8,
    "U64": 8,
    "F64": 8,
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One stored tensor, as its file's header has it.

    Attributes:
        name: its name in the checkpoint.
        dtype: as safetensors writes it, such as I32, F16 or BF16.
        shape: sizes, outermost first.
        file: name of the file that holds it.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * ELEMENT_BYTES.get(self.dtype, 1)

    def words(self) -> str:
        """Such as "qweight I32 [512, 4096]", for messages."""
        return f"{self.name.rpartition('.')[2]} {self.dtype} {list(self.shape)}"


class TensorFiles(Mapping[str, TensorInfo]):
    """Every tensor of a checkpoint folder by name. Files stay open (mapped, not read) until close.

    Attributes:
        folder: the checkpoint.
        metadata: the `__metadata__` entries of all files together.
    """

    def __init__(self, folder: Path) -> None:
        """Reads the headers.

        Raises:
            CheckpointError: no safetensors files, a damaged or missing one, or a tensor that
                stands in two of them.
        """
        self.folder = folder
        self.metadata: dict[str, str] = {}
        self._handles: dict[str, Any] = {}
        self._infos: dict[str, TensorInfo] = {}
        try:
            for name in _file_names(folder):
                self._add_file(name)
        except BaseException:
            self.close()
            raise

    def __getitem__(self, name: str) -> TensorInfo:
        return self._infos[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._infos)

    def __len__(self) -> int:
        return len(self._infos)

    def __enter__(self) -> TensorFiles:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Unmaps the files; tensors that were read stay valid."""
        self._handles.clear()

    def read(self, name: str, device: str = "cpu") -> Tensor:
        """One tensor; on the CPU it is a view of the mapped file where safetensors allows it.

        Raises:
            CheckpointError: no such tensor, the checkpoint was closed, or its file is damaged.
        """
        info = self._infos.get(name)
        if info is None:
            raise CheckpointError(f"{self.folder} holds no tensor {name!r}.")
        handle = self._handles.get(info.file)
        if handle is None:
            raise CheckpointError(
                f"{self.folder} was closed before {name!r} was read; keep the checkpoint open "
                f"while its layers are loaded."
            )
        try:
            tensor: Tensor = handle.get_tensor(name)
        except (SafetensorError, RuntimeError) as error:
            raise CheckpointError(
                f"tensor {name!r} of {self.folder / info.file} cannot be read ({error}); copy or "
                f"download the file again."
            ) from error
        return tensor if device == "cpu" else tensor.to(device)

    def _add_file(self, name: str) -> None:
        path = self.folder / name
        try:
            # Any, as its methods have no types
            handle: Any = safe_open(str(path), framework="pt", device="cpu")
            self.metadata.update(handle.metadata() or {})
            self._handles[name] = handle
            for key in handle.keys():  # noqa: SIM118  # a handle is no mapping
                part = handle.get_slice(key)
                info = TensorInfo(key, str(part.get_dtype()), tuple(part.get_shape()), name)
                earlier = self._infos.setdefault(key, info)
                if earlier is not info:
                    raise CheckpointError(
                        f"tensor {key!r} stands in both {earlier.file} and {name} of "
                        f"{self.folder}; remove the file that does not belong to the model."
                    )
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{path} is no whole safetensors file ({error}); copy or download it again."
            ) from error


def _file_names(folder: Path) -> list[str]:
    """The files that the index names, or every safetensors file where there is no index."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is no folder; name the folder of a checkpoint.")
    index = folder / INDEX_NAME
    if index.exists():
        return _indexed(index)
    names = sorted(path.name for path in folder.glob("*.safetensors"))
    if not names:
        pickled = sorted(path.name for kind in PICKLED for path in folder.glob(kind))
        why = (
            f"only {', '.join(pickled[:3])}, which are pickles: reading them could run any code. "
            f"Save the model as safetensors"
            if pickled
            else "nothing else to read weights from. Name the folder of a Hugging Face checkpoint"
        )
        raise CheckpointError(f"{folder} holds no *.safetensors, {why}.")
    return names


def _indexed(index: Path) -> list[str]:
    try:
        if index.stat().st_size > MAX_INDEX_BYTES:
            raise CheckpointError(
                f"{index} has {index.stat().st_size} bytes; an index has at most {MAX_INDEX_BYTES}."
            )
        document = json.loads(index.read_text(encoding="utf-8"))
        names = sorted(set(document["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{index} is no index of safetensors files ({error!r}); download it again."
        ) from error
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise CheckpointError(
                f"{index} names the file {name!r}, which is not one of its own folder; an index "
                f"may name files beside it alone."
            )
        if not (index.parent / name).is_file():
            raise CheckpointError(
                f"{index} names {name}, which is missing; the download is incomplete."
            )
    return names
