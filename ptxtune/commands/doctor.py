"""ptxtune doctor: is everything here that a tuning run needs, and what cures what is not?"""

from __future__ import annotations

from dataclasses import asdict

import click

from ptxtune.choose_gpu import chosen
from ptxtune.detect import detect
from ptxtune.doctor import Health, examine
from ptxtune.options import cache_option, db_option, device_option, json_option
from ptxtune.output import say, say_json

MARKS = {Health.OK: "ok  ", Health.WARNING: "note", Health.FAILED: "FAIL"}


@click.command("doctor")
@device_option
@db_option
@cache_option
@json_option
@click.pass_context
def command(
    context: click.Context,
    /,
    *,
    device: str | None,
    db: str | None,
    cache_dir: str | None,
    as_json: bool,
) -> None:
    """Check driver, NVRTC, device, caches and database, with cures.

    The exit code is 1 where something failed; a missing GPU alone is no failure.

    \b
    Example:
      ptxtune doctor
    """
    detection = detect() if device is None else chosen(detect(), device)
    checks = examine(detection, db=db, cache_dir=cache_dir)
    failed = any(check.health is Health.FAILED for check in checks)
    if as_json:
        say_json({"ok": not failed, "checks": [asdict(check) for check in checks]})
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            say(f"{MARKS[check.health]}  {check.name.ljust(width)}  {check.detail}")
            if check.cure:
                say(f"{' ' * (width + 8)}-> {check.cure}")
    context.exit(1 if failed else 0)
