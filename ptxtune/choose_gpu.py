"""--device: picks one of the GPUs in this machine, by index or UUID; nothing here touches CUDA."""

from __future__ import annotations

from ptxgen.errors import ArchError
from ptxtune.detect import DetectedGpu, Detection


def chosen(detection: Detection, device: str) -> Detection:
    """The detection with the chosen GPU alone.

    Args:
        detection: the visible GPUs.
        device: an index as nvidia-smi counts, or a UUID or its unique beginning ("GPU-...").

    Raises:
        ArchError: no GPU, or no single one, is meant; the message lists those there are.
    """
    word = device.strip()
    if word.isdecimal():
        found = [gpu for gpu in detection.gpus if gpu.index == int(word)]
    else:
        found = [gpu for gpu in detection.gpus if word and gpu.uuid.startswith(word)]
    if len(found) == 1:
        return Detection((found[0],))
    if not detection.gpus:
        raise ArchError(
            f"device {device!r} is not here: {detection.reason}. Leave --device out to predict for "
            f"a GPU that is only named with --gpu."
        )
    means = f"is the beginning of {len(found)} UUIDs" if found else "is not among the visible GPUs"
    raise ArchError(
        f"device {device!r} {means}; choose one by its index or UUID: "
        f"{', '.join(map(_title, detection.gpus))}. CUDA_VISIBLE_DEVICES may hide others."
    )


def _title(gpu: DetectedGpu) -> str:
    return f"{gpu.index} = {gpu.name} ({gpu.uuid})"
