"""Paths as Windows spells them: drives, backslashes, and names that look like them.

The files of drive C: are in a folder of this machine (`simulated.DrivePath`).
"""

import json
from pathlib import Path, PureWindowsPath

import pytest
from test_systems import run

from checkpoints import write_llama
from ingot.cli.shared.adapter_flags import parse_scaled
from ingot.errors import ConfigError
from ingot.store.names import FileName, HubName, parse_name
from tiny_llama import write_tiny_llama


@pytest.mark.parametrize(
    "text",
    [
        r"C:\models\m.gguf",
        r"c:\models\m",
        "C:/models/m.gguf",
        "D:m.gguf",
        r"models\m.gguf",
        r"owner\repo",
        r"\\server\share\m.gguf",
        r"\\?\C:\models\m.gguf",
    ],
)
def test_a_path_is_not_a_name_of_a_model_elsewhere(text: str) -> None:
    assert parse_name(text) == FileName(text)


def test_names_of_models_elsewhere_stay_what_they_are() -> None:
    assert parse_name("hf:owner/repo") == HubName("owner/repo")
    assert parse_name("owner/repo:Q8_0") == HubName("owner/repo", "Q8_0", plain=True)


@pytest.mark.parametrize(
    ("given", "path", "scale"),
    [
        (r"C:\lora.gguf", r"C:\lora.gguf", 1.0),
        (r"C:\lora.gguf:0.5", r"C:\lora.gguf", 0.5),
        ("C:/lora.gguf:2", "C:/lora.gguf", 2.0),
    ],
)
def test_a_drive_is_not_the_scale_of_an_adapter(given: str, path: str, scale: float) -> None:
    assert parse_scaled(given) == (path, scale)


@pytest.mark.parametrize("scale", ["nan", "inf", "-inf"])
def test_the_scale_of_an_adapter_is_finite(scale: str) -> None:
    with pytest.raises(ConfigError, match="must be a finite number"):
        parse_scaled(f"lora.gguf:{scale}")


# Writes, finds and opens models by paths on drive C:, and prints what it found as JSON.
FIND = r"""
import json
import numpy as np
from ingot import GgufLoader, GgufWriter, store
from ingot.config import config
from ingot.convert import locate_quantized
from ingot.errors import ModelNotFoundError
writer = GgufWriter(r"C:\models\parts.gguf", max_tensors=1)
for name in ("first", "second"):
    writer.add_tensor(name, np.zeros((2, 32), np.float32))
writer.write()
found = {"cache": str(config().cache)}
for name in (r"C:\models\one.gguf", "c:/models/one.gguf", "cached"):
    path = store.resolve(name)
    found[name] = [str(path), GgufLoader(path).metadata["general.architecture"]]
found["parts"] = list(GgufLoader(store.resolve(r"C:\models\parts-00001-of-00002.gguf")).tensors)
try:
    store.resolve(r"C:\models\none.gguf")
except ModelNotFoundError as error:
    found["missing"] = str(error)
found["listed"] = [model.name for model in store.list_models()]
found["no type"] = locate_quantized(r"C:\checkpoint")
made = locate_quantized(r"C:\checkpoint:Q8_0")
found["quantized"] = [str(made), GgufLoader(made).metadata["general.architecture"]]
print(json.dumps(found))
"""


def test_models_are_written_and_found_on_a_drive(tmp_path: Path) -> None:
    drive = tmp_path / "drive"
    for folder in ("models", "cache/models", "home"):
        (drive / folder).mkdir(parents=True)
    for file in ("models/one.gguf", "cache/models/cached.gguf"):
        write_tiny_llama(drive / file)
    write_llama(drive / "checkpoint")
    said = run("windows", drive / "home", "-c", FIND, DRIVE_C=drive, INGOT_CACHE=r"C:\cache")
    found = json.loads(said)
    assert found["cache"] == r"C:\cache"
    assert found[r"C:\models\one.gguf"] == [r"C:\models\one.gguf", "llama"]
    assert found["c:/models/one.gguf"] == [r"c:\models\one.gguf", "llama"]
    assert found["cached"] == [r"C:\cache\models\cached.gguf", "llama"]
    assert found["parts"] == ["first", "second"]
    assert "check the path" in found["missing"]
    assert found["listed"] == ["cached.gguf"]
    assert found["no type"] is None
    made, architecture = found["quantized"]
    assert PureWindowsPath(made).is_relative_to(r"C:\cache")
    assert architecture == "llama"
    assert (drive / PureWindowsPath(made).relative_to("C:/").as_posix()).is_file()
