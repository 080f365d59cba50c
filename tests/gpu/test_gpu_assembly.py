"""What inline assembly makes of words of codes, without a GPU: its instructions in NumPy."""

import re

import numpy as np
import pytest
from numpy.typing import NDArray

from ingot.backends.gpu.kernels import weights
from ingot.backends.gpu.kernels.weights import LEVELS_ANY, LEVELS_FP4, LEVELS_ODD
from ingot.backends.gpu.planes import PlaneForm, form_of
from ingot.gguf import GgmlType
from ingot.quant import formats

Words = NDArray[np.uint32]
NIBBLES = 4
FORMS = {
    form_of(type): type.name
    for type in formats()
    if form_of(type).bits == NIBBLES and not form_of(type).high and not form_of(type).minimum
}


def assembly(form: PlaneForm) -> str:
    """The one that `chunk_slices` takes for a form without extras and minimums."""
    if form.level_kind == LEVELS_ANY.value:
        return str(weights._levels_asm(form))
    fixed = {0: weights._NIBBLE, LEVELS_FP4.value: weights._FP4, LEVELS_ODD.value: weights._ODD}
    return str(fixed[form.level_kind].value)


def halves(word: Words) -> NDArray[np.float16]:
    return np.ascontiguousarray(word).view(np.float16)


def permuted(a: Words, b: Words, chosen: Words) -> Words:
    """Four of the eight bytes of two words."""
    both = a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32)
    out = np.zeros_like(a)
    for at in range(4):
        number = (chosen >> np.uint32(4 * at) & np.uint32(7)).astype(np.uint64)
        byte = both >> number * np.uint64(8) & np.uint64(255)
        out |= byte.astype(np.uint32) << np.uint32(8 * at)
    return out


def run(code: str, registers: dict[str, Words]) -> None:
    """PTX line by line; the table of lop3 is always (a & b) | c."""
    for name, operands in re.findall(r"^\s*([a-z][\w.]+) ([^;]+);", code, re.MULTILINE):
        target, *sources = (part.strip() for part in operands.split(","))
        values = [
            registers[s] if s in registers else np.full_like(registers["$4"], int(s, 0))
            for s in sources
        ]
        match name.split(".")[0]:
            case "mov":
                found = values[0]
            case "shr":
                found = values[0] >> values[1]
            case "shl":
                found = values[0] << values[1]
            case "and":
                found = values[0] & values[1]
            case "or":
                found = values[0] | values[1]
            case "lop3":
                assert sources[3] == "0xEA"
                found = values[0] & values[1] | values[2]
            case "prmt":
                assert not (values[2] & np.uint32(0x8888)).any()  # which would repeat signs
                found = permuted(values[0], values[1], values[2])
            case "sub":
                found = (halves(values[0]) - halves(values[1])).view(np.uint32)
            case "mul":
                found = (halves(values[0]) * halves(values[1])).view(np.uint32)
            case _:
                raise AssertionError(name)
        registers[target] = found


@pytest.mark.parametrize("form", FORMS, ids=FORMS.values())
def test_every_code_becomes_its_weight(form: PlaneForm) -> None:
    """All words of a row, beside another row's: each field is the level that it names."""
    low = np.arange(1 << 16, dtype=np.uint32)
    high = np.random.default_rng(0).permutation(low)
    scale = 2.0**14 if form.level_kind == LEVELS_FP4.value else 1.0
    scales = np.full(1 << 16, np.float16(scale)).view(np.uint16).astype(np.uint32) * 0x10001
    registers: dict[str, Words] = {"$4": low | high << np.uint32(16)}
    registers |= {f"${5 + part}": scales.astype(np.uint32) for part in range(4)}
    run(assembly(form), registers)
    levels = np.array(form.levels or range(-8, 8), np.float32)
    levels /= 2 if form.level_kind == LEVELS_FP4.value else 1
    for part in range(4):
        found = halves(registers[f"${part}"]).reshape(-1, 2)
        for row, words in enumerate((low, high)):
            codes = words >> np.uint32(4 * part) & np.uint32(15)
            np.testing.assert_array_equal(found[:, row], levels[codes])


def test_forms_that_are_checked() -> None:
    assert {form.level_kind for form in FORMS} == {0, 1, 2, 3}
    assert form_of(GgmlType["IQ4_NL"]) in FORMS
