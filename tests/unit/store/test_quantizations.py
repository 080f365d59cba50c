"""Which model is taken of those that a repository has."""

from dataclasses import dataclass

import pytest

from ingot.errors import MemoryShortageError, ModelNotFoundError, StoreError
from ingot.store.quantizations import (
    choices_of,
    choose,
    memory_needed,
    projector_of,
    quantization_of,
)

GIB = 1 << 30


@dataclass(frozen=True)
class File:
    path: str
    size: int


QWEN = [
    File("Qwen3-4B-BF16.gguf", 8 * GIB),
    File("Qwen3-4B-Q8_0.gguf", 4 * GIB),
    File("Qwen3-4B-Q4_K_M.gguf", 5 * GIB // 2),
    File("Qwen3-4B-UD-Q2_K_XL.gguf", 3 * GIB // 2),
    File("imatrix_unsloth.gguf", 1000),
    File("mmproj-F32.gguf", 1000),
    File("mmproj-F16.gguf", 500),
    File("README.md", 10),
]


@pytest.mark.parametrize(
    ("path", "quantization"),
    [
        ("Qwen3-4B-Q4_K_M.gguf", "Q4_K_M"),
        ("qwen2.5-7b-instruct-q4_0.gguf", "Q4_0"),
        ("model.IQ2_XXS.gguf", "IQ2_XXS"),
        ("Q8_0/model-00001-of-00002.gguf", "Q8_0"),
        ("gpt-oss-20b-MXFP4.gguf", "MXFP4"),
        ("X-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("model-f16.gguf", "F16"),
        ("TriLM-TQ1_0.gguf", "TQ1_0"),
        ("Phi-3-mini-4k-instruct.gguf", None),
        ("EQ4_K.gguf", None),
    ],
)
def test_the_quantization_in_a_name(path: str, quantization: str | None) -> None:
    assert quantization_of(path) == quantization


@pytest.mark.parametrize(
    ("room", "taken"),
    [(100 * GIB, "Q8_0"), (6 * GIB, "Q8_0"), (5 * GIB, "Q4_K_M"), (3 * GIB, "UD-Q2_K_XL")],
)
def test_the_best_that_fits_is_taken_and_said(room: int, taken: str) -> None:
    choice, said = choose(choices_of(QWEN), None, None, room, "hf:a/b")
    assert choice.quantization == taken
    assert said
    assert said.startswith(f"taking {taken}, the best of 4 that fits")
    assert memory_needed(choice.size) <= room


def test_nothing_fits() -> None:
    with pytest.raises(MemoryShortageError, match=r"the smallest, UD-Q2_K_XL, takes about 2\.5"):
        choose(choices_of(QWEN), None, None, GIB, "hf:a/b")


def test_unquantized_files_are_taken_if_there_is_nothing_else() -> None:
    files = [File("a-F16.gguf", 4), File("a-F32.gguf", 8)]
    choice, _ = choose(choices_of(files), None, None, 100 * GIB, "hf:a/b")
    assert choice.quantization == "F32"


@pytest.mark.parametrize("asked", ["Q4_K_M", "q4_k_m"])
def test_a_quantization_that_is_named_is_taken_even_if_it_does_not_fit(asked: str) -> None:
    choice, said = choose(choices_of(QWEN), asked, None, 1, "hf:a/b")
    assert [file.path for file in choice.files] == ["Qwen3-4B-Q4_K_M.gguf"]
    assert said is None
    assert choose(choices_of(QWEN), "Q2_K_XL", None, 1, "x")[0].quantization == "UD-Q2_K_XL"


def test_what_there_is_is_said_if_it_is_not_there() -> None:
    with pytest.raises(ModelNotFoundError, match=r"no quantization Q5_0; it has BF16, Q8_0, Q4_K"):
        choose(choices_of(QWEN), "Q5_0", None, 1, "hf:a/b")
    with pytest.raises(ModelNotFoundError, match=r"hf:a/b has no file 'x\.gguf'; it has"):
        choose(choices_of(QWEN), None, "x.gguf", 1, "hf:a/b")
    with pytest.raises(ModelNotFoundError, match="no GGUF file"):
        choose(choices_of([File("a.txt", 1)]), None, None, 1, "hf:a/b")


def test_two_models_of_one_quantization_are_not_guessed() -> None:
    files = [File("a-Q8_0.gguf", 4), File("b-Q8_0.gguf", 8)]
    for quantization in ("Q8_0", None):
        with pytest.raises(StoreError, match=r"name one: b-Q8_0\.gguf, a-Q8_0\.gguf"):
            choose(choices_of(files), quantization, None, 100 * GIB, "hf:a/b")
    assert choose(choices_of(files), None, "a-Q8_0.gguf", 1, "x")[0].size == 4


def test_split_files_are_one_choice_if_they_are_complete() -> None:
    parts = [File(f"Q8_0/m-Q8_0-0000{part}-of-00003.gguf", part) for part in (3, 1, 2)]
    (choice,) = choices_of(parts)
    assert [file.size for file in choice.files] == [1, 2, 3]
    assert choice.quantization == "Q8_0"
    assert choose([choice], None, parts[0].path, 1, "x")[0] == choice
    assert choices_of(parts[1:]) == []


def test_the_projector() -> None:
    projector = projector_of(QWEN)
    assert projector
    assert projector.path == "mmproj-F16.gguf"
    assert projector_of(QWEN[:3]) is None
