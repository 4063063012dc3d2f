"""The only module that calls the CUDA driver: identity, modules, launches, typed errors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from cuda.bindings import driver

from ptxgen.errors import DriverError
from ptxgen.prepared_launch import PreparedLaunch
from ptxgen.source import LaunchPlan

# Errors after which the context is lost (CUDA Driver API, "CUresult").
STICKY = frozenset(
    {
        driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS,
        driver.CUresult.CUDA_ERROR_MISALIGNED_ADDRESS,
        driver.CUresult.CUDA_ERROR_LAUNCH_TIMEOUT,
        driver.CUresult.CUDA_ERROR_LAUNCH_FAILED,
        driver.CUresult.CUDA_ERROR_ILLEGAL_INSTRUCTION,
        driver.CUresult.CUDA_ERROR_INVALID_ADDRESS_SPACE,
        driver.CUresult.CUDA_ERROR_INVALID_PC,
        driver.CUresult.CUDA_ERROR_HARDWARE_STACK_ERROR,
        driver.CUresult.CUDA_ERROR_ECC_UNCORRECTABLE,
        driver.CUresult.CUDA_ERROR_CONTEXT_IS_DESTROYED,
        driver.CUresult.CUDA_ERROR_ASSERT,
    }
)

# CUDA versions that brought the functions which are called at their address.
TENSOR_MAP_VERSION = 12000
LAUNCH_VERSION = 11080


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What the driver says of a device.

    Attributes:
        uuid: as NVML writes it, GPU-xxxxxxxx-....
        smem_optin_bytes: most shared memory a CTA may opt in to.
    """

    name: str
    capability: tuple[int, int]
    num_sms: int
    smem_optin_bytes: int
    l2_bytes: int
    memory_bytes: int
    uuid: str


def call(result: tuple[Any, ...], what: str) -> Any:
    """The value of a driver call's result tuple.

    Raises:
        DriverError: the call failed; sticky where the context is lost.
    """
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        raise DriverError(
            f"{what} failed: {status.name}.", code=int(status), sticky=status in STICKY
        )
    return values[0] if values else None


def device_facts(index: int = 0) -> DeviceFacts:
    """Identity and limits of a device. Needs no context."""
    call(driver.cuInit(0), "cuInit")
    device = call(driver.cuDeviceGet(index), "cuDeviceGet")
    attribute = driver.CUdevice_attribute

    def get(which: Any) -> int:
        return int(call(driver.cuDeviceGetAttribute(which, device), "cuDeviceGetAttribute"))

    name = call(driver.cuDeviceGetName(128, device), "cuDeviceGetName")
    raw_uuid = bytes(call(driver.cuDeviceGetUuid(device), "cuDeviceGetUuid").bytes)
    digits = raw_uuid.hex()
    cuts = (0, 8, 12, 16, 20, 32)
    return DeviceFacts(
        name=name.split(b"\0", 1)[0].decode(),
        capability=(
            get(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            get(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        ),
        num_sms=get(attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        smem_optin_bytes=get(attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        l2_bytes=get(attribute.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
        memory_bytes=int(call(driver.cuDeviceTotalMem(device), "cuDeviceTotalMem")),
        uuid="GPU-" + "-".join(digits[a:b] for a, b in pairwise(cuts)),
    )


class LoadedKernel:
    """A kernel in the current context, ready to launch.

    Attributes:
        plan: its launch plan.
        registers: of a thread, as loaded.
        local_bytes: local memory of a thread; not 0 means spills.
        ctas_per_sm: CTAs that are resident on one SM at once.
    """

    def __init__(self, cubin: bytes, entry: str, plan: LaunchPlan) -> None:
        """Loads the cubin and opts in to its shared memory.

        Raises:
            DriverError: the image is not for this device, or wants more than it has.
        """
        self.plan = plan
        self._module = call(driver.cuModuleLoadData(cubin), "cuModuleLoadData")
        self._function = call(
            driver.cuModuleGetFunction(self._module, entry.encode()), f"finding entry {entry}"
        )
        which = driver.CUfunction_attribute
        call(
            driver.cuFuncSetAttribute(
                self._function,
                which.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                plan.smem_bytes,
            ),
            f"opting in to {plan.smem_bytes} bytes of shared memory",
        )
        # All of L1 as shared memory: a successor kernel can then become resident beside this one.
        call(
            driver.cuFuncSetAttribute(
                self._function, which.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100
            ),
            "setting the shared-memory carve-out",
        )
        self._launch = PreparedLaunch(
            plan,
            int(self._function),
            launcher=_address("cuLaunchKernelEx", LAUNCH_VERSION),
            encoder=_address("cuTensorMapEncodeTiled", TENSOR_MAP_VERSION) if plan.x_box else 0,
        )
        self.registers = self._attribute(which.CU_FUNC_ATTRIBUTE_NUM_REGS)
        self.local_bytes = self._attribute(which.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)
        self.ctas_per_sm = int(
            call(
                driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                    self._function, plan.threads, plan.smem_bytes
                ),
                "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            )
        )

    def _attribute(self, which: Any) -> int:
        return int(call(driver.cuFuncGetAttribute(which, self._function), "cuFuncGetAttribute"))

    def launch(  # noqa: PLR0917  # a hot path: keywords cost 1 us
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
        chained: bool = False,
    ) -> None:
        """Launches for a batch of m > 0 on raw device pointers (0 for an unused one).

        The tensor map of x, where the plan asks for one, is made anew only where x, m or ldx are
        not those of the launch before.

        Args:
            ldx: row stride of x in elements.
            ldy: row stride of y in elements.
            stream: a CUstream handle.
            chained: programmatic stream serialization, where the plan allows it.

        Raises:
            DriverError: the launch was refused.
            TensorError: the tensor map cannot describe x.
        """
        code = self._launch(x, packed, bias, y, workspace, m, ldx, ldy, stream, chained)
        if code:
            call(
                (driver.CUresult(code),),
                f"launching {self.plan.grid(m)} CTAs of {self.plan.threads} threads",
            )

    def unload(self) -> None:
        """Frees the module; the kernel must not be launched any more."""
        call(driver.cuModuleUnload(self._module), "cuModuleUnload")


@cache
def _address(name: str, version: int) -> int:
    """Where a function of the driver is. Raises DriverError where it has none."""
    flags = driver.CUdriverProcAddress_flags.CU_GET_PROC_ADDRESS_DEFAULT
    found = driver.cuGetProcAddress(name.encode(), version, flags.value)
    address = int(call(found, f"finding {name}"))
    if not address:
        raise DriverError(f"the driver has no {name}; update it to one of CUDA 12.0 or newer.")
    return address
