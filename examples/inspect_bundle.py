"""Checks an exported bundle and prints its kernels. Needs no GPU.

python examples/inspect_bundle.py path/to/bundle
"""

from __future__ import annotations

import sys

from ptxgen.bundle.manifest import Bucket
from ptxgen.bundle.verify import verify
from ptxgen.errors import PtxtuneError


def describe(bucket: Bucket) -> str:
    """One line about a bucket's kernel."""
    plan, resources = bucket.plan, bucket.resources
    line = (
        f"M <= {bucket.m_max}: grid {plan.grid(bucket.m_max)} of {plan.threads} threads, "
        f"{resources.registers} registers, {plan.smem_bytes} bytes of shared memory, "
        f"{plan.workspace_bytes(bucket.m_max)} bytes of workspace"
    )
    if bucket.measurement is None:
        return f"{line}, not measured"
    how = "predicted" if bucket.measurement.predicted else "measured"
    return f"{line}, {bucket.measurement.time_us:.2f} us {how}"


def main(path: str) -> int:
    """Prints a bundle; exit code 2 where it is damaged."""
    try:
        manifest = verify(path)
    except PtxtuneError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"{manifest.problem.key()} for {manifest.arch} ({manifest.device.name})")
    for bucket in manifest.buckets:
        print(f"  {describe(bucket)}")
    print(f"{len(manifest.files)} files, all unchanged")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} path/to/bundle")
    sys.exit(main(sys.argv[1]))
