"""As vllm.platforms."""

import enum


class PlatformEnum(enum.Enum):
    CUDA = enum.auto()
