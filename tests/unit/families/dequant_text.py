"""Runs the emitted text of dequantize() in Python: its statements, with the PTX of the picks."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import torch

from ptxgen.arch import ARCHS
from ptxgen.families import emit
from ptxgen.families.mma.config import MmaConfig
from ptxgen.problem import Problem

CONFIG = MmaConfig(
    block_m=8,
    warp_m=8,
    block_n=16,
    warp_n=16,
    block_k=128,
    warps_k=1,
    num_stages=2,
    split_k=1,
    scale_on="accumulators",
    weights_first=False,
    min_ctas=1,
)
STATEMENT = re.compile(
    r"a\[(\d)\] = sub2\((pick_\w+)\(word(?: >> (\d+))?\), (zero_[08])\);|word >>= (\d+);"
)
LOP3 = re.compile(
    r"u32 (pick_\w+)\(u32 value\) \{\n  u32 d;\n"
    r'  asm\("lop3\.b32 %0, %1, (0x[0-9a-f]+), (0x[0-9a-f]+), 0xea;"'
)
BODY = re.compile(r"void dequantize\(.*?\) \{\n(.*?)\n\}", re.DOTALL)
CONSTANT = re.compile(r"enum : u32 \{ (\w+) = (0x\w+) \};")
ZERO_TEXT = re.compile(r" zero_([08])\[rb\] = (.*);")
SUBNORMAL = re.compile(r"a\[(\d)\] = word & (0x[0-9a-f]+);|word >>= (\d+);")
ZERO_WORD = re.compile(r"(pick_\w+)\(zeros \* (0x[0-9a-f]+)(?: >> (\d+))?\)")


def halves(word: int, dtype: str) -> tuple[float, float]:
    """The two 16-bit floats of a register."""
    bits = np.array([word & 0xFFFF, word >> 16], dtype=np.uint16)
    if dtype == "fp16":
        low, high = bits.view(np.float16)
    else:
        low, high = torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).tolist()
    return float(low), float(high)


def rounded(value: float, dtype: str) -> float:
    """The value after rounding to the dtype."""
    return float(torch.tensor(value, dtype=torch.float64).to(TORCH[dtype]))


TORCH = {"fp16": torch.float16, "bf16": torch.bfloat16}


class EmittedDequantize:
    """dequantize() of a dtype and zero kind, interpreted statement by statement."""

    def __init__(self, dtype: str, zero: str) -> None:
        self.dtype = dtype
        problem = Problem(64, 128, 128, dtype, zero)  # type: ignore[arg-type]
        text = emit(problem, CONFIG, ARCHS["sm_90a"]).text
        self.picks = {
            name: (int(mask, 16), int(magic, 16)) for name, mask, magic in LOP3.findall(text)
        }
        (body,) = BODY.findall(text)
        self.statements = [match.groups() for match in STATEMENT.finditer(body)]
        self.constants = {name: int(bits, 16) for name, bits in CONSTANT.findall(text)}
        texts = dict(ZERO_TEXT.findall(text))
        self.zero_texts = (texts["0"], texts["8"])

    def zero_word(self, which: int, zeros: int) -> int:
        """zero_0 or zero_8 for a byte of two zero points."""
        text = self.zero_texts[which]
        if not (found := ZERO_WORD.fullmatch(text)):
            return self.constants[text]
        pick, twice, shift = found.groups()
        mask, magic = self.picks[pick]
        return ((zeros * int(twice, 16) & 0xFFFFFFFF) >> int(shift or 0)) & mask | magic

    def __call__(self, word: int, zeros: int) -> list[tuple[float, float]]:
        """The four registers, each as its low and high half."""
        registers: dict[int, tuple[float, float]] = {}
        zero_words = {"zero_0": self.zero_word(0, zeros), "zero_8": self.zero_word(1, zeros)}
        for index, pick, shift, zero, word_shift in self.statements:
            if word_shift:
                word >>= int(word_shift)
                continue
            mask, magic = self.picks[pick]
            picked = ((word >> int(shift or 0)) & mask) | magic
            pairs = zip(
                halves(picked, self.dtype), halves(zero_words[zero], self.dtype), strict=True
            )
            registers[int(index)] = tuple(rounded(a - b, self.dtype) for a, b in pairs)  # type: ignore[assignment]
        return [registers[index] for index in range(4)]


def emitted_subnormals(word: int) -> list[tuple[float, float]]:
    """The four registers that dequantize() makes of a word with dequant = "subnormal"."""
    config = replace(CONFIG, dequant="subnormal")
    (body,) = BODY.findall(emit(Problem(64, 128), config, ARCHS["sm_90a"]).text)
    registers = {}
    for index, mask, shift in SUBNORMAL.findall(body):
        if shift:
            word >>= int(shift)
        else:
            registers[int(index)] = halves(word & int(mask, 16), "fp16")
    return [registers[index] for index in range(4)]
