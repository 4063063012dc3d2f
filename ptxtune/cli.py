"""The ptxtune command: finds its subcommands, and shows errors as one paragraph."""

from __future__ import annotations

import atexit
import contextlib
import errno
import importlib
import os
import sys
from typing import IO, Any

import click

from ptxgen.errors import MachineError, OutOfMemoryError, PtxtuneError, os_error_text
from ptxgen.suggestion import did_you_mean
from ptxtune.interrupts import INTERRUPTED, MESSAGE, Interrupts
from ptxtune.version import VERSION

# Summaries stand here so that `ptxtune --help` imports no command, hence neither torch nor Plotly.
COMMANDS = {
    "tune": "Find the fastest kernel of each layer and batch, and store it.",
    "best": "Show the best stored config of a layer, and how good it is.",
    "export": "Write a tuned kernel as a bundle that runs without ptxtune.",
    "inspect": "Show what a bundle or a checkpoint holds, without a GPU.",
    "convert": "Pack a quantized checkpoint once, for the kernels.",
    "bench": "Compare our kernels with cuBLAS and other packages.",
    "report": "Write the stored results as an HTML page, Markdown or JSON.",
    "list": "List stored winners, runs, trials or seeds.",
    "one": "Run one config, for instance to reproduce a trial.",
    "check": "Check kernels without a GPU, in a PTX interpreter.",
    "emit": "Print the source of a kernel.",
    "space": "Count the legal configs of a problem, and what each rule rejects.",
    "db": "Export, import, check or upgrade what is stored.",
    "selfcheck": "Check the tuner itself: regret, winner flips, injected faults.",
    "doctor": "Check driver, NVRTC, device, caches and database, with cures.",
}


class ShownError(click.ClickException):
    """A PtxtuneError on its way to stderr."""

    def __init__(self, error: PtxtuneError) -> None:
        super().__init__(str(error) or repr(error))
        self.exit_code = error.exit_code  # type: ignore[misc]  # click calls it a class variable


class InterruptedCommand(click.ClickException):
    """Ctrl-C ended the command."""

    exit_code = INTERRUPTED

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.message, file=file, err=file is None)


class LazyGroup(click.Group):
    """Imports a command's module when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"ptxtune.commands.{cmd_name}").command
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS:
            hint = did_you_mean(name, COMMANDS)
            ctx.fail(f"No such command {name!r}; {hint}Choose one of {', '.join(COMMANDS)}.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; errors that a user can cause become one paragraph."""
        try:
            from ptxtune.warned import warnings_as_notes  # noqa: PLC0415 (help imports no database)

            with warnings_as_notes():
                return super().invoke(ctx)
        except BaseException as error:
            watched = ctx.find_object(Interrupts)
            if isinstance(error, KeyboardInterrupt) or (watched is not None and watched.seen):
                raise InterruptedCommand(MESSAGE) from None
            if isinstance(error, PtxtuneError):
                raise ShownError(error) from error
            if isinstance(error, MemoryError):
                raise ShownError(OutOfMemoryError()) from error
            if isinstance(error, OSError) and error.errno != errno.EPIPE:
                raise ShownError(MachineError(os_error_text(error))) from error
            raise


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="ptxtune")
def cli() -> None:
    """Tune, query and export W4A16 matrix-multiplication kernels for your GPU.

    \b
    Example:
      ptxtune tune --n 4096 --k 4096 --m 1,8,16 --budget quick
      ptxtune best --n 4096 --k 4096 --m 8
      ptxtune export --n 4096 --k 4096 --m 1,8,16 --out bundle
    """


def main() -> None:
    """Runs the command of this process; ends it."""
    interrupts = Interrupts()
    interrupts.watch()
    atexit.register(interrupts.leave)  # the first one registered is the last one run
    code: Any = 0
    try:
        cli(prog_name="ptxtune", obj=interrupts)
    except SystemExit as ended:
        code = ended.code
    except KeyboardInterrupt:
        interrupts.seen = True
    except OSError as error:  # such as of --help on a full disk
        code = MachineError.exit_code
        with contextlib.suppress(OSError):
            sys.stderr.write(f"Error: {os_error_text(error)}\n")
    if not _flushed():
        code = code or MachineError.exit_code
    interrupts.end()
    sys.exit(INTERRUPTED if interrupts.seen else code)


def _flushed() -> bool:
    """Whether all of stdout is written; what is not is dropped, or Python would say so again."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True
