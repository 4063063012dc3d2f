"""JSON that nobody sane writes: every later step may take what is parsed as it is."""

from __future__ import annotations

import json

import pytest

from ptxgen.json_text import MAX_DEPTH, MAX_DIGITS, json_value

DEEP = 200_000
BAD = {
    "deep lists": "[" * DEEP + "]" * DEEP,
    "deep objects": '{"a":' * DEEP + "1" + "}" * DEEP,
    "a little too deep": "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1),
    "many digits": "7" * 5000,
    "a few too many": "-" + "7" * (MAX_DIGITS + 1),
    "infinite": "[1e999]",
    "Infinity": "[-Infinity]",
    "NaN": "[NaN]",
    "NUL": '["a\\u0000b"]',
    "NUL in a name": '{"a\\u0000b": 1}',
    "half a pair": '["\\ud800"]',
    "half a pair in a name": '[{"\\udfff": 1}]',
    "not JSON": "{",
    "empty": "",
    "not UTF-8": b"\xff\xfe\xff",
}


@pytest.mark.parametrize("name", BAD)
def test_a_reason_of_one_line(name: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        json_value(BAD[name])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
    str(caught.value).encode()


def test_all_else_is_what_the_library_says() -> None:
    text = json.dumps(
        {"a": [1, -2.5, True, None, "ä\U0001f600"], "n": int("9" * MAX_DIGITS), "": {}}
    )
    assert json_value(text) == json.loads(text)
    assert json_value("[" * MAX_DEPTH + "]" * MAX_DEPTH) is not None
