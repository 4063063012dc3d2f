"""README and docs/cli.md agree with the code: commands parse, snippets compile, names exist."""

import ast
import re
import shlex
from pathlib import Path

import click
import pytest

import ptxtune
from ptxtune.cli import COMMANDS, cli
from ptxtune.cli_docs import render
from ptxtune.version import VERSION

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.S | re.M)


def commands(text: str) -> list[str]:
    lines = "\n".join(blocks(text, "sh")).splitlines()
    inline = re.findall(r"`(ptxtune [a-z]+ [^`]*)`", text)
    return [line.partition(" > ")[0] for line in (*lines, *inline) if line.startswith("ptxtune ")]


def parse(line: str) -> click.Context:
    """Parses a command line without running it; raises click's errors."""
    name, *words = shlex.split(line)[1:]
    command = cli.get_command(click.Context(cli), name)
    assert command is not None, name
    return command.make_context(name, words)


def test_cli_document_is_up_to_date() -> None:
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == render()


@pytest.mark.parametrize("line", dict.fromkeys(commands(README) + commands(render())))
def test_documented_commands_parse(line: str) -> None:
    parse(line)


def test_the_parse_check_refuses_what_does_not_exist() -> None:
    with pytest.raises(click.UsageError):
        parse("ptxtune best --n 4096 --speed 11")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_stands_in_the_document_with_all_its_options(name: str) -> None:
    section = render().partition(f"## ptxtune {name}\n")[2].partition("\n## ")[0]
    command = cli.get_command(click.Context(cli), name)
    options = [item for item in command.params if isinstance(item, click.Option)]
    assert options
    for option in options:
        assert f"| `{option.opts[0]}`" in section
    assert commands(section)


def test_readme_shows_the_three_jobs_and_names_real_commands() -> None:
    used = {shlex.split(line)[1] for line in commands(README)}
    assert {"tune", "best", "export", "report"} <= used
    assert used <= set(COMMANDS)


@pytest.mark.parametrize("source", blocks(README, "python"))
def test_readme_python_uses_public_names(source: str) -> None:
    names = {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "ptxtune"
    }
    assert names
    assert names <= set(ptxtune.__all__)


def test_readme_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"^make ([a-z]+)|`make ([a-z]+)`", README, re.M)):
        assert re.search(rf"^{''.join(target)}:", makefile, re.M), target


def test_readme_links_exist() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / link).exists(), link


def test_version_is_stated_once() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r'^version = "(.*)"', project, re.M).group(1) == VERSION == ptxtune.__version__
