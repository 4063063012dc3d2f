"""C++ names in kernel templates: where a template declares them, and which it uses of others."""

from __future__ import annotations

import re

from ptxgen.arch import ARCHS
from ptxgen.families.template import TEMPLATES
from ptxgen.ptx.registry import instruction_named

TYPE = r"(?:const |constexpr )*(?:u8|u32|u64|int|float4?|auto|bool|void|long long|TensorMap)"
_WORDS = """
const constexpr u8 u32 u64 int float float4 auto bool void long unsigned char typedef struct
alignas template enum extern return if else for while continue break true false operator
always_inline nullptr volatile asm opaque threadIdx blockIdx gridDim min max make_float4 ll u
"""
NOT_NAMES = frozenset(_WORDS.split())
"""Words of C++ and CUDA, and members of its types."""

_LEFT_OUT = (
    re.compile(r"/\*#.*?#\*/", re.DOTALL),
    re.compile(r"^[ \t]*//%.*$", re.MULTILINE),
    re.compile(r"//(?!%).*"),
    re.compile(r'"[^"\n]*"'),
    re.compile(r"^#pragma.*$", re.MULTILINE),
)
_NUMBER = re.compile(r"(?<=_|n)\$\{[^}]*\}(?=\(|k16)")
"""In the name of a numbered instruction."""
_VALUE = re.compile(r"\$\{[^}]*\}")
_INCLUDE = re.compile(r'^[ \t]*//% +include "([^"]+)"\n', re.MULTILINE)
_USES = re.compile(r"/\*# Uses ([^#]*)#\*/")
_NAME = re.compile(r"(?<![\w.$])[a-z]\w*")
_DECLARATION = re.compile(
    rf"(?:^|[;{{(,]|\b)\s*{TYPE}[\s*&]+(?:__restrict__ )?\(?&?(\w+)\)?((?:\[[^;]*?\])*)",
    re.MULTILINE,
)
_LIST = re.compile(rf"^\s*(?:for \()?{TYPE}[ *&]+([^;()]*(?:\([^;]*?\)[^;()]*)*);", re.MULTILINE)


def text_of(name: str) -> str:
    """A template's source, by its path below ptxgen."""
    return (TEMPLATES / name).read_text()


def flattened(name: str) -> str:
    """A template's source with every include in place."""
    return _INCLUDE.sub(lambda found: flattened(found[1]), text_of(name))


def code_of(text: str) -> str:
    """C++ alone: no statements, values, comments, strings and pragmas."""
    text = _NUMBER.sub("24", text)
    text = _VALUE.sub(" ", text)
    for pattern in _LEFT_OUT:
        text = pattern.sub("", text)
    return text


def declared(code: str) -> dict[str, int]:
    """Lower-case names that the code declares, and where it does so first."""
    found: dict[str, int] = {}
    for match in _DECLARATION.finditer(code):
        found[match[1]] = min(match.start(1), found.get(match[1], len(code)))
    for match in _LIST.finditer(code):  # int a = f(x), b, c[4];
        depth = 0
        for token in re.finditer(r"[([{]|[)\]}]|,\s*\*?(\w+)", match[1]):
            depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(token[0], 0)
            if token[1] and depth == 0:
                at = match.start(1) + token.start(1)
                found[token[1]] = min(at, found.get(token[1], len(code)))
    return {name: at for name, at in found.items() if name not in NOT_NAMES}


def used(code: str) -> dict[str, int]:
    """Lower-case names of variables, lambdas and functions, and where they are used first."""
    found: dict[str, int] = {}
    for match in _NAME.finditer(code):
        found.setdefault(match[0], match.start())
    return {name: at for name, at in found.items() if not _is_known(name)}


def foreign(text: str) -> list[str]:
    """Names that a template uses and others declare."""
    code = code_of(text)
    own, uses = declared(code), used(code)
    return sorted(name for name, at in uses.items() if own.get(name, len(code)) > at)


def told(text: str) -> list[str]:
    """What a template's own comment says that it uses of others."""
    found = _USES.search(text)
    return re.findall(r"\w+", found[1]) if found else []


def _is_known(name: str) -> bool:
    if name in NOT_NAMES or name.startswith("__"):
        return True
    return instruction_named(name, "fp16", ARCHS["sm_90a"]) is not None
