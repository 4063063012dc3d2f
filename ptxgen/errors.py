"""The exception tree: every error a user can cause carries the value, the limit and the way out."""

from typing import Any


class PtxtuneError(Exception):
    """Base of all errors that are shown as one paragraph, without a traceback."""

    exit_code = 2


class MachineError(PtxtuneError):
    """The operating system refused something that no other error stands for: a full disk, say."""


class OutOfMemoryError(PtxtuneError):
    """The machine has too little memory."""

    def __init__(self) -> None:
        super().__init__(
            "there is not enough memory for this; take a smaller layer, or one rank's share of it."
        )


def os_error_text(error: OSError) -> str:
    """An OSError as a paragraph with the way out."""
    what = f" ({error.filename})" if error.filename else ""
    return (
        f"the system refused to read or write{what}: {error.strerror or error}. Check the place "
        f"and the free space, and run the command again."
    )


class ArgumentError(PtxtuneError):
    """An argument of the wrong type, or none of its choices."""


class ProblemError(PtxtuneError):
    """A problem, M or group size that no kernel can serve."""


class ConfigError(PtxtuneError):
    """A config that is malformed or illegal for its problem and arch."""


class ArchError(PtxtuneError):
    """An unknown GPU, or an arch that the toolchain cannot target."""


class TensorError(PtxtuneError):
    """A tensor of the wrong dtype, shape, stride, device or content."""


class UnderflowWarning(UserWarning):
    """Groups of a weight became 0, as their scales are below the smallest number of the dtype."""


class CompileError(PtxtuneError):
    """NVRTC is missing or refused the source; the log is in the message."""


class SerializedError(CompileError):
    """ptxas would run a kernel's wgmma one by one: legal, but too slow to be worth a launch."""


class CacheError(PtxtuneError):
    """The compile cache's folder cannot be written, or its disk is full.

    Attributes:
        compiled: the kernel (a ptxgen.compile.CompiledKernel) that could not be stored; None where
            nothing was compiled.
    """

    compiled: Any = None


class FileError(PtxtuneError):
    """A file that a user named cannot be written, is there already, or has no possible name."""


class ToolError(PtxtuneError):
    """A program of the CUDA toolkit that is missing or failed, such as nvdisasm."""


class DriverError(PtxtuneError):
    """A CUDA driver call failed.

    Attributes:
        code: the CUresult value as an int.
        sticky: True where the context is lost and the process must end.
    """

    def __init__(self, message: str, code: int = 0, sticky: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.sticky = sticky


class StoreError(PtxtuneError):
    """A database that is unwritable, foreign, locked or of another schema."""


class TrialFileError(PtxtuneError):
    """A file of shared or recorded trials that is damaged, cut off, or of another program."""


class BundleError(PtxtuneError):
    """An exported bundle that is damaged, tampered with or for another machine."""


class NotABundleError(BundleError):
    """A folder that is none, or a bundle of a version that this ptxtune does not read."""


class ModelError(PtxtuneError):
    """An unknown model name, or a config.json without the needed fields."""


class CheckpointError(PtxtuneError):
    """A checkpoint that is damaged, incomplete, or contradicts itself."""


class UnsupportedFormatError(PtxtuneError):
    """Quantized weights that are understood, or named, but that no kernel here can compute."""


class UnsupportedPtxError(PtxtuneError):
    """PTX that the interpreter does not know; the instruction and its line are in the message."""


class KernelFaultError(PtxtuneError):
    """A kernel did on the interpreter what it must not do; the subclasses say what.

    Attributes:
        races: races seen before, as ptxgen.interp.Race; often the cause.
    """

    races: tuple[Any, ...] = ()


class OutOfBoundsError(KernelFaultError):
    """An access outside every allocation, or a write to a read-only one."""


class MisalignedError(KernelFaultError):
    """An address that is not a multiple of the access size."""


class UninitializedError(KernelFaultError):
    """Shared memory that nobody wrote reached a global store, an address or a branch."""


class DivergenceError(KernelFaultError):
    """An instruction of a whole warp (.sync.aligned) ran with lanes missing."""


class InFlightError(KernelFaultError):
    """A register of an asynchronous instruction was written before the wait, or without a fence; or
    a warp or a CTA ended before its copies did, or before what other CTAs do to its memory."""


class MbarrierError(KernelFaultError):
    """An mbarrier used where there is none, or beyond its counts."""


class BarrierError(KernelFaultError):
    """A barrier number or thread count that does not exist, or that the warps do not agree on."""


class TensorMapError(KernelFaultError):
    """A tensor copy or prefetch whose address holds no tensor map, or a multicast to nobody."""


class DeadlockError(KernelFaultError):
    """Every warp waits for another."""


class StepLimitError(KernelFaultError):
    """More instructions than the limit: most likely an endless loop."""
