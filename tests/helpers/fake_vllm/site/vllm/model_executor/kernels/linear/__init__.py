"""As vllm.model_executor.kernels.linear: the kernels of a platform, in order of preference."""

from vllm.platforms import PlatformEnum


class MacheteLinearKernel: ...


_POSSIBLE_KERNELS = {PlatformEnum.CUDA: [MacheteLinearKernel]}
