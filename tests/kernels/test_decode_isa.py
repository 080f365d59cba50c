"""`INGOT_ISA` chooses the instruction set of a process; a bad value is a clear error."""

import os
import subprocess
import sys

import pytest

from ingot import _native

PROGRAM = """
from ingot import _native
from ingot.errors import ConfigError
from ingot.quant import decode
try:
    decode(bytes(18), 2, threads=1)
except ConfigError as error:
    print("ConfigError:", error)
else:
    print(_native.active_isa())
"""


def run(value: str) -> str:
    environment = {**os.environ, "INGOT_ISA": value}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("name", _native.instruction_sets())
def test_each_supported_set_can_be_forced(name):
    assert run(name) == name


def test_nothing_set_takes_the_best():
    assert run("") == _native.instruction_sets()[-1]


def test_an_unknown_name_is_a_config_error():
    message = run("sse9")
    assert message.startswith("ConfigError: INGOT_ISA: ")
    assert "'sse9'" in message
    for name in _native.instruction_sets(supported_only=False):
        assert name in message
