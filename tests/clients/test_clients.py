"""Clients of other projects against a real server: chat, stream, structured output, tools, errors.

The model is scripted (scripted_gguf.py), so what it says and calls is known. Each client is a
script that runs in the environment that `make test-clients` installs; what it found comes back as
JSON.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from scripted_gguf import tool_call, write_scripted_gguf
from server.serving import PATIENCE, serving

pytestmark = pytest.mark.oracle

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).with_name("scripts")
PYTHON = ROOT / "build" / "clients" / "bin" / "python"
NODE_MODULES = ROOT / "build" / "clients-node"

HELLO, SUNNY, ADA = "Hello there, how are you?", "It is sunny in Rome.", {"name": "Ada", "age": 36}
CALL = tool_call("get_weather", city="Rome")
FIELDS = "[[ ## name ## ]]\nAda\n\n[[ ## age ## ]]\n36\n\n[[ ## completed ## ]]"
ANSWERED = f"[[ ## answer ## ]]\n{SUNNY}\n\n[[ ## completed ## ]]"
# dspy streams nothing of an answer that comes in one piece, as it may on a busy machine.
STORY = " ".join([SUNNY] * 20)
THOUGHT = "[[ ## next_thought ## ]]\nI look."
STEP = (
    "\n\n[[ ## next_tool_name ## ]]\n{}\n\n[[ ## next_tool_args ## ]]\n{}\n\n[[ ## completed ## ]]"
)
SCRIPTS_OF_THE_MODEL = {
    # dspy says which fields it wants; the first three are those of its ReAct.
    "`[[ ## reasoning ## ]]`": f"[[ ## reasoning ## ]]\nIt is.\n\n{ANSWERED}",
    "[[ ## observation_0 ## ]]": THOUGHT + STEP.format("finish", "{}"),
    "[[ ## next_tool_name ## ]]": THOUGHT + STEP.format("get_weather", '{"city": "Rome"}'),
    "`[[ ## answer ## ]]`": ANSWERED,
    "`[[ ## story ## ]]`": f"[[ ## story ## ]]\n{STORY}\n\n[[ ## completed ## ]]",
    "[[ ## age ## ]]": FIELDS,
    "Observation": tool_call("final_answer", answer=SUNNY),  # smolagents
    "tool: ": SUNNY,
    "Call get_weather": '{"city": "Rome"}',  # outlines
    "weather": CALL,
    "as JSON": json.dumps(ADA),
    "Extract the person": tool_call("Person", **ADA),
    "Extract both": tool_call("Person", **ADA) + "\n" + tool_call("Person", name="Bob", age=7),
    "final person": tool_call("final_result", **ADA),
    "JSON object": json.dumps(ADA) + " ",
    "Yes or no": "yes",
    "Which digits": "123",
}

# What is said under a grammar: structured outputs, forced and strict tool calls.
CONSTRAINED = (
    "Observation",
    "Call get_weather",
    "weather",
    "as JSON",
    "JSON object",
    "Extract the person",
    "final person",
    "Yes or no",
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("clients") / "scripted.gguf"
    model = write_scripted_gguf(path, SCRIPTS_OF_THE_MODEL, otherwise=HELLO, whole=CONSTRAINED)
    with serving(model, "--api-key", "sesame", "--temp", 0, "--threads", 2) as served:
        yield served.url


def results(*command: object) -> dict[str, Any]:
    quiet = {"OPENAI_API_KEY": "none", "DO_NOT_TRACK": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    ran = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        stdin=subprocess.DEVNULL,
        env=os.environ | quiet,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return json.loads(ran.stdout.splitlines()[-1])


def found(url: str, script: str, *only: str) -> dict[str, Any]:
    if not PYTHON.exists():
        miss("the clients are not installed: make test-clients")
    return results(PYTHON, SCRIPTS / f"{script}.py", url, *only)


def miss(what: str) -> NoReturn:
    """Skip a test without its environment, which must be there in CI."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


def check(found: dict[str, Any], error: str, **others: object) -> None:
    """Every client does these five things; `error` is the class of its error."""
    told = found.pop("error")
    assert (told["error"], "maximum context length" in told["message"]) == (error, True), told
    expected = {"chat": HELLO, "stream": HELLO, "structured": ADA, "tools": SUNNY}
    expected |= {"tools called": ["Rome"]}
    assert found == expected | others


def test_openai(url: str) -> None:
    check(found(url, "openai_client"), "BadRequestError")


def test_openai_agents(url: str) -> None:
    responses = {"tools_responses": SUNNY, "tools_responses called": ["Rome"]}
    check(found(url, "openai_agents"), "BadRequestError", **responses)


def test_anthropic(url: str) -> None:
    check(found(url, "anthropic_client"), "BadRequestError")


def test_litellm(url: str) -> None:
    check(found(url, "litellm_client"), "ContextWindowExceededError", chat_ollama=HELLO)


def test_langgraph(url: str) -> None:
    check(found(url, "langgraph_agent"), "OpenAIContextOverflowError")


def test_llama_index(url: str) -> None:
    check(found(url, "llama_index_agent"), "BadRequestError")


def test_instructor(url: str) -> None:
    told = found(url, "instructor_client")
    assert "maximum context length" in told.pop("error")["message"]
    both = [ADA, {"name": "Bob", "age": 7}]
    expected = {"chat": HELLO, "structured": ADA, "structured_tools": ADA, "stream": ADA}
    expected |= {"tools": SUNNY, "tools called": ["Rome"]}
    assert told == expected | {"structured_parallel": both}


def test_pydantic_ai(url: str) -> None:
    check(found(url, "pydantic_ai_agent"), "ModelHTTPError")


def test_smolagents(url: str) -> None:
    check(found(url, "smolagents_agent"), "BadRequestError")


def test_dspy(url: str) -> None:
    told = found(url, "dspy_programs")
    assert told.pop("error")["error"] == "ContextWindowExceededError"
    expected = {"chat": HELLO, "structured": ADA, "structured_json": ADA, "stream": STORY}
    assert told == expected | {"tools": SUNNY, "tools called": ["Rome"]}


def test_outlines(url: str) -> None:
    told = found(url, "outlines_client")
    assert "maximum context length" in told.pop("error")["message"]
    expected = {"chat": HELLO, "stream": HELLO, "structured": ADA, "tools": SUNNY}
    expected |= {"tools called": ["Rome", "Rome"]}  # vLLM's mode and SGLang's
    assert told == expected | {"choice": "yes", "regex": "123"}


def test_llm(url: str) -> None:
    check(found(url, "llm_command"), "printed")


def test_ollama(url: str) -> None:
    check(found(url, "ollama_client"), "ResponseError")


def found_in_node(url: str, *only: str) -> dict[str, Any]:
    node = shutil.which("node")
    if node is None or not (NODE_MODULES / "node_modules").is_dir():
        miss("node or its packages are not here: make test-clients")
    return results(node, SCRIPTS / "node_clients.mjs", url, NODE_MODULES, *only)


@pytest.fixture(scope="module")
def in_node(url: str) -> dict[str, Any]:
    return found_in_node(url)


@pytest.mark.parametrize(
    ("client", "error"), [("openai", "BadRequestError"), ("ai", "APICallError")]
)
def test_node(in_node: dict[str, Any], client: str, error: str) -> None:
    check(dict(in_node[client]), error)


def test_node_ollama(in_node: dict[str, Any]) -> None:
    told = dict(in_node["ollama"])
    assert told.pop("embed") == pytest.approx([1, 1], abs=1e-3)  # lengths of two embeddings
    own = {"generate": HELLO, "generate_stream": HELLO, "tags": ["scripted:latest"]}
    check(told, "ResponseError", **own)


@pytest.fixture(scope="module", params=["bare", "fenced"])
def untagged(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A server whose model writes its call without tags, in several pieces."""
    path = tmp_path_factory.mktemp(request.param) / "scripted.gguf"
    scripts = {"tool: ": SUNNY, "weather": tool_call("get_weather", request.param, city="Rome")}
    model = write_scripted_gguf(path, scripts, otherwise=HELLO)
    with serving(model, "--api-key", "sesame", "--temp", 0, "--threads", 2) as served:
        yield served.url


# Those that leave the choice to the model. The others constrain what it writes, or read its text.
CHOOSING = (
    "openai_client",
    "openai_agents",
    "anthropic_client",
    "litellm_client",
    "langgraph_agent",
    "llama_index_agent",
    "instructor_client",
    "pydantic_ai_agent",
    "llm_command",
    "ollama_client",
)


@pytest.mark.parametrize("client", CHOOSING)
def test_calls_without_tags(untagged: str, client: str) -> None:
    told = found(untagged, client, "tools")
    called = {name: value for name, value in told.items() if name.endswith(" called")}
    assert set(map(tuple, called.values())) == {("Rome",)}
    assert {value for name, value in told.items() if name not in called} == {SUNNY}


def test_calls_without_tags_in_node(untagged: str) -> None:
    expected = {"tools": SUNNY, "tools called": ["Rome"]}
    assert found_in_node(untagged, "tools") == dict.fromkeys(("openai", "ai", "ollama"), expected)


def test_the_lock_of_the_packages_names_no_registry() -> None:
    folder = Path(__file__).with_name("node")
    wanted = json.loads((folder / "package.json").read_text())["dependencies"]
    locked = json.loads((folder / "package-lock.json").read_text())["packages"]
    assert {name: locked[f"node_modules/{name}"]["version"] for name in wanted} == wanted
    assert not [name for name, package in locked.items() if "resolved" in package]
