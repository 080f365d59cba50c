"""schemathesis reads the server's own description and looks for answers that break it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from server.serving import serving
from tiny_llama import write_tiny_llama

pytestmark = pytest.mark.oracle

# Not every body that a schema allows can be answered: ids depend on the vocabulary, texts on the
# length of the context, fields on each other.
_EXCLUDED = "positive_data_acceptance"
# How a body that breaks the schema is refused. A list with more items than allowed may be refused
# for the size of its body (413), which schemathesis does not expect unless it is told.
_CONFIG = """
[checks]
negative_data_rejection.expected-statuses = [400, 404, 405, 413, 415, 422]
"""


def test_the_description_is_kept(tmp_path: Path) -> None:
    pytest.importorskip("schemathesis", reason="schemathesis is not here: pip install '.[oracle]'")
    keys = {"llama.context_length": 2048}
    model = write_tiny_llama(tmp_path / "tiny.gguf", keys=keys)
    command = [
        *(sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"),
        *("run", "--seed", "1", "--max-examples", "25", "--generation-database", "none"),
        *("--phases", "examples,coverage,fuzzing", "--exclude-checks", _EXCLUDED, "--no-color"),
        *("--request-timeout", "300", "--suppress-health-check", "all"),  # a busy machine
    ]
    (tmp_path / "schemathesis.toml").write_text(_CONFIG)
    with serving(model, "--max-tokens", 8, "--slot-save-path", tmp_path) as served:
        ran = subprocess.run(
            [*command, f"{served.url}/openapi.json"],
            cwd=tmp_path,
            env=os.environ | {"PYTHONHASHSEED": "1"},  # the same examples in every run
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, "\n".join(line[:400] for line in ran.stdout.splitlines())
        (generated,) = re.findall(r"(\d+) generated, \1 passed", ran.stdout)
        assert int(generated) > 2000
        assert not [line for line in served.log if "Traceback" in line]
