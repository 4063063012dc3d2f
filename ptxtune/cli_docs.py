"""Writes docs/cli.md from the commands themselves: python -m ptxtune.cli_docs > docs/cli.md"""

from __future__ import annotations

import inspect
import textwrap

import click

from ptxtune.cli import COMMANDS, cli

HEAD = """\
# Commands

Made by `python -m ptxtune.cli_docs > docs/cli.md`; a test compares it with the commands.

Results go to stdout, progress and notes to stderr; `--json` makes the result one JSON document. An
error is one paragraph on stderr and an exit code other than 0: 1 where `check`, `doctor`,
`selfcheck` or the config of `one` failed or a bundle is damaged (`inspect`), 2 for input or a
machine that cannot serve the command, 130 after Ctrl-C, whichever command it ends. Files and
folders that a command is told to write are new ones: what is there already is kept, and the command
refused, unless `--force` is given.
"""


def render() -> str:
    """The whole document."""
    sections = [HEAD, _contents()]
    sections += [_section(name) for name in COMMANDS]
    return "\n".join(sections)


def _contents() -> str:
    lines = [f"- [{name}](#ptxtune-{name}): {summary}" for name, summary in COMMANDS.items()]
    return "\n".join(lines) + "\n"


def _section(name: str) -> str:
    context = click.Context(cli)
    command = cli.get_command(context, name)
    if command is None or command.help is None:
        raise ValueError(f"command {name!r} has no help to document")
    prose, _, example = inspect.cleandoc(command.help).partition("\b\n")
    code = textwrap.dedent(example.partition("Example:\n")[2]).rstrip()
    rows = [_row(option) for option in command.params if isinstance(option, click.Option)]
    arguments = [_argument(item) for item in command.params if isinstance(item, click.Argument)]
    parts = [f"## ptxtune {name}\n", prose.strip() + "\n", *arguments]
    parts.append(f"```sh\n{code}\n```\n")
    parts.append("| option | meaning |\n| --- | --- |\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _argument(argument: click.Argument) -> str:
    choices = getattr(argument.type, "choices", ()) or (str(argument.name).upper(),)
    return f"Argument: {', '.join(f'`{choice}`' for choice in choices)}.\n"


def _row(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    choices = getattr(option.type, "choices", ())
    words = [option.help or ""]
    if choices:
        words.append(f"One of {', '.join(f'`{choice}`' for choice in choices)}.")
    if option.required:
        words.append("Required.")
    if option.show_default and not option.is_flag:
        words.append(f"Default: `{option.default}`.")
    return f"| {names} | {' '.join(words).replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    click.echo(render(), nl=False)
