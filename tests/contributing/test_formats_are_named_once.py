"""Code outside a format's header and class does not know the format by name.

What is left are the encoders, which come in families, the mixes of a quantized file and the types
to choose from for a size, the mixes whose speed is predicted, the formats that a KV cache can have,
and the one that checkpoints store.
"""

import re
import tokenize
from pathlib import Path

from contributing.changed_tree import ROOT
from ingot.gguf import GgmlType

BLOCK_FORMATS = {type.name for type in GgmlType if type.block_size > 1}
OF_A_KV_CACHE = {"Q8_0", "Q4_0"}
OF_CHECKPOINTS = {"MXFP4"}
PACKAGE = ROOT / "src" / "ingot"
NAMING = {
    PACKAGE / name
    for name in (
        "gguf/types.py",
        "quantize/mixes.py",
        "quantize/allocation.py",
        "cli/doctor/prediction.py",
    )
}


def words_of_cpp(path: Path) -> set[str]:
    code = re.sub(r'//[^\n]*|"[^"\n]*"', "", path.read_text())
    return set(re.findall(r"\w+", code))


def words_of_python(path: Path) -> set[str]:
    with path.open("rb") as file:
        tokens = list(tokenize.tokenize(file.readline))
    return {token.string for token in tokens if token.type == tokenize.NAME}


def test_native_code_names_no_format() -> None:
    files = [*(ROOT / "native").rglob("*.h"), *(ROOT / "native").rglob("*.cpp")]
    encoders = {ROOT / "native" / "quantize" / "weighted.cpp"}
    encoders |= {file for file in files if file.name.startswith("encode_")}
    others = [f for f in files if f.parent.name != "formats" and f not in encoders]
    assert len(others) > 80
    for file in others:
        assert not (BLOCK_FORMATS - OF_A_KV_CACHE) & words_of_cpp(file), file


def test_python_code_names_no_format() -> None:
    files = [file for file in PACKAGE.rglob("*.py") if file.parent.name != "quant"]
    assert len(files) > 200
    for file in files:
        if file not in NAMING:
            known = OF_CHECKPOINTS if file.parent.name == "convert" else set()
            assert not (BLOCK_FORMATS - OF_A_KV_CACHE - known) & words_of_python(file), file
