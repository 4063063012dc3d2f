"""PreparedLaunch: a kernel's launch with all that stays the same filled in once.

The driver reads a launch from C structures. cuda-python builds them anew for each call, which costs
the host 11 us on an H200's machine (2026-12-01); here they are made once, and a call writes the few
numbers that changed into them.
"""

from __future__ import annotations

import ctypes
import struct
import threading

from ptxgen.source import LaunchPlan
from ptxgen.tensor_map_encode import MapEncoder

# CUresult cuLaunchKernelEx(const CUlaunchConfig*, CUfunction, void** kernelParams, void** extra)
LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)

# Structures of cuda.h on a 64-bit host; a test compares them with NVIDIA's own bindings.
CONFIG = struct.Struct("@7IPPI4x")
"""CUlaunchConfig: gridDim x, y, z, blockDim x, y, z, sharedMemBytes, hStream, attrs, numAttrs."""
ATTRIBUTE = struct.Struct("@I4xI60x")
"""CUlaunchAttribute: id, pad, value (64 bytes)."""
PROGRAMMATIC_STREAM_SERIALIZATION = 6
"""CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION."""

ARGUMENTS = struct.Struct("@5Qi2q")
"""Arguments of every kernel: x, packed, bias, y, workspace, m, ldx, ldy (ptxgen.source.ENTRY)."""
ARGUMENT_OFFSETS = (0, 8, 16, 24, 32, 40, 48, 56)

KEPT_GRIDS = 4096
"""Batches whose grid is remembered."""


class PreparedLaunch:
    """Launches one loaded kernel on raw device pointers. Safe to call from several threads."""

    def __init__(self, plan: LaunchPlan, function: int, launcher: int, encoder: int) -> None:
        """Fills in what stays the same.

        Args:
            plan: the kernel's launch plan.
            function: its CUfunction.
            launcher: address of the driver's cuLaunchKernelEx in this process.
            encoder: address of its cuTensorMapEncodeTiled; 0 where the plan has no x_box.
        """
        self._plan = plan
        self._function = function
        self._launch = LAUNCH(launcher)
        self._attribute = ctypes.create_string_buffer(
            ATTRIBUTE.pack(PROGRAMMATIC_STREAM_SERIALIZATION, 1), ATTRIBUTE.size
        )
        self._config = ctypes.create_string_buffer(CONFIG.size)
        self._arguments = ctypes.create_string_buffer(ARGUMENTS.size)
        self._x_map = None if plan.x_box is None else MapEncoder(plan.k, plan.x_box, encoder)
        start = ctypes.addressof(self._arguments)
        addresses = [start + offset for offset in ARGUMENT_OFFSETS]
        if self._x_map is not None:
            addresses.append(self._x_map.address)
        self._parameters = (ctypes.c_void_p * len(addresses))(*addresses)
        self._pointers = (ctypes.addressof(self._config), ctypes.addressof(self._parameters))
        self._grids: dict[int, tuple[int, int, int]] = {}
        self._configured: tuple[int, int, bool] | None = None
        self._lock = threading.Lock()

    def __call__(  # noqa: PLR0917  # by keywords a call takes 1 us longer
        self,
        x: int,
        packed: int,
        bias: int,
        y: int,
        workspace: int,
        m: int,
        ldx: int,
        ldy: int,
        stream: int,
        chained: bool,
    ) -> int:
        """Launches for a batch of m > 0; see ptxgen.device.LoadedKernel.launch.

        Returns:
            The CUresult of the launch, 0 where it was taken.

        Raises:
            DriverError: the tensor map was refused.
            TensorError: no tensor map can describe x.
        """
        config, parameters = self._pointers
        with self._lock:  # the driver copies the structures before it returns
            if self._configured != (m, stream, chained):
                self._configure(m, stream, chained)
            if self._x_map is not None:
                self._x_map.point_to(x, m, ldx)
            ARGUMENTS.pack_into(self._arguments, 0, x, packed, bias, y, workspace, m, ldx, ldy)
            return int(self._launch(config, self._function, parameters, None))

    def _configure(self, m: int, stream: int, chained: bool) -> None:
        plan = self._plan
        grid = self._grids.get(m)
        if grid is None:
            if len(self._grids) >= KEPT_GRIDS:
                self._grids.clear()
            grid = self._grids[m] = plan.grid(m)
        attributes = int(chained and plan.pdl)
        CONFIG.pack_into(
            self._config,
            0,
            *grid,
            plan.threads,
            1,
            1,
            plan.smem_bytes,
            stream,
            ctypes.addressof(self._attribute) if attributes else 0,
            attributes,
        )
        self._configured = (m, stream, chained)
