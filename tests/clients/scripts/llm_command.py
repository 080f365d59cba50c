import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from common import CALLED, HELLO, KEY, LONG, PERSON, SCHEMA, URL, WEATHER, tell

FOLDER = tempfile.TemporaryDirectory()
Path(FOLDER.name, "extra-openai-models.yaml").write_text(
    f"- model_id: here\n  model_name: any\n  api_base: {URL}/v1\n  api_key_name: here\n"
    "  supports_tools: true\n  supports_schema: true\n"
)
Path(FOLDER.name, "keys.json").write_text(json.dumps({"here": KEY}))
CALLS = Path(FOLDER.name, "calls")
FUNCTION = f"""
def get_weather(city: str) -> str:
    with open({str(CALLS)!r}, "a") as calls:
        calls.write(city)
    return f"sunny in {{city}}"
"""


def llm(*arguments, stdin=None):
    done = subprocess.run(
        [sys.executable, "-m", "llm", "-m", "here", *arguments],
        env=os.environ | {"LLM_USER_PATH": FOLDER.name},
        capture_output=True,
        text=True,
        input=stdin or "",
        check=False,
    )
    return done.stdout.strip() or done.stderr.strip()


def chat():
    return llm("--no-stream", HELLO)


def stream():
    return llm(HELLO)


def structured():
    return json.loads(llm("--schema", json.dumps(SCHEMA), PERSON))


def tools():
    answer = llm("--functions", FUNCTION, WEATHER)
    CALLED.append(CALLS.read_text())  # by another process
    return answer


def error():
    said = llm("--no-stream", stdin=LONG)
    return {"error": "printed", "message": said}


tell(chat, stream, structured, tools, error)
