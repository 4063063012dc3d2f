"""As vllm.scalar_type: two of its types."""


class scalar_types:  # noqa: N801
    uint4 = "uint4"
    uint4b8 = "uint4b8"
