"""Command-line options that several commands share, so that a word means the same everywhere."""

from __future__ import annotations

from collections.abc import Callable, Container
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
from click.core import ParameterSource

from ptxgen.arguments import path, shown
from ptxgen.errors import ProblemError
from ptxgen.problem import Dtype, Zero, check_m
from ptxtune.selection import BOTH, DTYPE, GROUP, PROTOCOLS, ZERO

Command = TypeVar("Command", bound=Callable[..., Any])
DTYPES = get_args(Dtype)


class UserPath(click.Path):
    """A path as everywhere: ~ expanded, and no word that click would take for this folder."""

    def __init__(self, *, dir_okay: bool = True) -> None:
        super().__init__(dir_okay=dir_okay, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A Path. Raises ArgumentError, which is told as that of a call is."""
        name = param.opts[0] if param is not None else "the path"
        return super().convert(path(value, name), param, ctx)


def m_option(default: str = "1", least: int = 0) -> Callable[[Command], Command]:
    """--m: batch sizes as 1,8,16; without repetition, in order."""

    def parsed(_context: click.Context, _option: click.Parameter, text: str) -> tuple[int, ...]:
        return tuple(sorted({_batch_size(word, least) for word in text.split(",")}))

    return click.option(
        "--m",
        "m",
        metavar="M[,M...]",
        default=default,
        show_default=True,
        callback=parsed,
        help="Batch sizes.",
    )


def _batch_size(word: str, least: int) -> int:
    try:
        m = check_m(int(word))
    except ValueError as error:
        raise click.BadParameter(
            f"{shown(word)} is not an integer; write batch sizes as 1,8,16."
        ) from error
    except ProblemError as error:
        raise click.BadParameter(str(error)) from error
    if m < least:
        raise click.BadParameter(f"M = {m} has nothing to run; the least is {least}.")
    return m


def problem_options(*, several: bool) -> Callable[[Command], Command]:
    """--n, --k, --group, --dtype, --zero, --bias; several: also --model, --tp, both dtypes."""
    dtypes = (*DTYPES, BOTH) if several else DTYPES

    def unsaid(default: object) -> str:
        return f" (default: as --model's config.json says, else {default})." if several else "."

    options = [
        click.option("--n", type=int, help="Output features of one layer."),
        click.option("--k", type=int, help="Input features of one layer."),
        click.option(
            "--group",
            type=int,
            default=None if several else GROUP,
            show_default=not several,
            help="Inputs that share a scale: 32, 64, 128, or -1 for the whole of K" + unsaid(GROUP),
        ),
        click.option(
            "--dtype",
            type=click.Choice(dtypes),
            default=None if several else DTYPE,
            show_default=not several,
            help="Of activations, scales and output" + unsaid(DTYPE),
        ),
        click.option(
            "--zero",
            type=click.Choice(get_args(Zero)),
            default=None if several else ZERO,
            show_default=not several,
            help="Zero points: sym (always 8), or int (0..15 a group)" + unsaid(ZERO),
        ),
        click.option("--bias/--no-bias", default=None, help="Add a bias (default: as the model)."),
    ]
    if several:
        options += [
            click.option(
                "--model",
                help="All linear layers of a model: its name, or its config.json or folder.",
            ),
            click.option(
                "--tp", type=int, default=1, show_default=True, help="Tensor-parallel size."
            ),
        ]
    return _all(options)


def protocol_option(*, several: bool, default: str) -> Callable[[Command], Command]:
    """--protocol: how launches follow each other."""
    return click.option(
        "--protocol",
        type=click.Choice((*PROTOCOLS, BOTH) if several else PROTOCOLS),
        default=default,
        show_default=True,
        help="plain launches, or chained by programmatic dependent launch.",
    )


gpu_option = click.option(
    "--gpu",
    help="Work for this GPU without having it, such as h200 or a100 (default: the GPU that is "
    "here, else h200).",
)
device_option = click.option(
    "--device",
    metavar="INDEX|UUID",
    help="Use this GPU of the machine: its index as nvidia-smi counts, or its UUID (default: the "
    "first visible one).",
)
db_option = click.option(
    "--db",
    "db",
    help="Database: a file or an SQLAlchemy URL (default: $PTXTUNE_DB, else the user data folder).",
)
cache_option = click.option(
    "--cache-dir", help="Compiled kernels (default: $PTXTUNE_CACHE_DIR, else the user cache)."
)
batch_invariant_option = click.option(
    "--batch-invariant",
    is_flag=True,
    help="Only kernels whose result for a row is the same bits for every M.",
)
force_option = click.option("--force", is_flag=True, help="Replace files that are there already.")
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document; progress goes to stderr."
)


def refuse_beside(context: click.Context, option: str, kept: Container[str]) -> None:
    """Refuses options given beside one that would leave them without effect.

    Args:
        context: of the command.
        option: which makes the others void, as it is written.
        kept: names of the parameters that still count.

    Raises:
        click.UsageError: names the options.
    """
    given = [
        item.opts[0]
        for item in context.command.params
        if item.name not in kept
        and context.get_parameter_source(item.name or "") is ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(
            f"{', '.join(given)} would have no effect beside {option}; leave out one or the other.",
            context,
        )


def protocols_of(word: str) -> tuple[str, ...]:
    """plain, chained, or both of them."""
    return PROTOCOLS if word == BOTH else (word,)


def _all(options: list[Callable[[Command], Command]]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
