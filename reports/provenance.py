"""Provenance: which device, toolchain, protocol and runs the numbers come from."""

from __future__ import annotations

from db.records import PROTOCOL_VERSION, DeviceRecord, RunRecord, ToolchainRecord
from ptxgen import env
from reports.conditions import conditions_text
from reports.data import ReportData
from reports.table import Column, Table

COLUMNS = (Column("what", numeric=False), Column("value", numeric=False))


def provenance_table(data: ReportData) -> Table:
    """What a reader needs to repeat or to doubt the numbers."""
    rows = [("generated", data.generated_at.isoformat(timespec="seconds"))]
    rows += [("timing protocol version", str(PROTOCOL_VERSION)), ("rows", _rows_text(data))]
    rows.append(("conditions", conditions_text(data)))
    rows.append(("pinned config", pin_text(data)))
    for device in dict.fromkeys(_devices(data)):
        rows += _device_rows(device)
    for toolchain in dict.fromkeys(_toolchains(data)):
        rows.append(("toolchain", _toolchain_text(toolchain)))
    rows += [(f"run {run.id}", _run_text(run)) for run in data.runs]
    return Table(COLUMNS, tuple(rows))


def pin_text(data: ReportData) -> str:
    """The pinned config, which queries and exports answer with instead of these winners."""
    return f"{data.pinned} (by {env.PIN.name})" if data.pinned else "none"


def _devices(data: ReportData) -> list[DeviceRecord]:
    return [w.device for w in data.winners] + [run.device for run in data.runs]


def _toolchains(data: ReportData) -> list[ToolchainRecord]:
    return [w.toolchain for w in data.winners] + [run.toolchain for run in data.runs]


def _rows_text(data: ReportData) -> str:
    measured = sum(not winner.predicted for winner in data.winners)
    predicted = len(data.winners) - measured
    words = f"{measured} measured winners"
    return words + (f", {predicted} predicted (no GPU ran them)" if predicted else "")


def _device_rows(device: DeviceRecord) -> list[tuple[str, str]]:
    gib = device.memory_bytes / 2**30
    facts = [
        f"{device.name}, compute capability {device.capability}, {device.num_sms} SMs",
        f"L2 {device.l2_bytes / 2**20:.0f} MiB",
        f"memory {gib:.0f} GiB" if gib else "",
        f"power limit {device.power_limit_w} W" if device.power_limit_w else "",
        device.uuid,
    ]
    ceilings = [
        f"read {device.read_gbps:.0f} GB/s" if device.read_gbps else "",
        f"copy {device.copy_gbps:.0f} GB/s" if device.copy_gbps else "",
        f"tensor {device.tensor_tflops:.0f} TFLOP/s" if device.tensor_tflops else "",
        f"launch {device.launch_us:.2f} us" if device.launch_us else "",
    ]
    source = "measured on the device" if device.measured else "from the table of known GPUs"
    rows = [("device", ", ".join(filter(None, facts)))]
    if any(ceilings):
        rows.append(("ceilings", ", ".join(filter(None, ceilings)) + f" ({source})"))
    return rows


def _toolchain_text(toolchain: ToolchainRecord) -> str:
    words = [
        f"driver {toolchain.driver}" if toolchain.driver else "no driver",
        f"NVRTC {toolchain.nvrtc}",
        f"ptxtune {toolchain.ptxtune}",
        f"torch {toolchain.torch}",
        f"commit {toolchain.commit}" if toolchain.commit else "",
    ]
    return ", ".join(filter(None, words))


def _run_text(run: RunRecord) -> str:
    end = run.ended_at.isoformat(timespec="seconds") if run.ended_at else "not ended"
    settings = ", ".join(f"{name} = {value}" for name, value in sorted(run.settings.items()))
    return f"{run.started_at.isoformat(timespec='seconds')} to {end}; {settings or 'no settings'}"


def device_title(data: ReportData) -> str:
    """The device names, for a title."""
    names = dict.fromkeys(device.name for device in _devices(data))
    return ", ".join(names) or "no device"
