"""outlines knows no tools: a call is a structured output, and the loop is written here."""

import json
from typing import Literal

import outlines
from common import HELLO, KEY, LONG, PERSON, URL, error_of, get_weather, tell
from openai import OpenAI
from pydantic import BaseModel

client = OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)
MODELS = (outlines.from_vllm(client, "any"), outlines.from_sglang(client, "any"))


class Person(BaseModel):
    name: str
    age: int


def same(values):
    assert all(value == values[0] for value in values), values
    return values[0]


def chat():
    return same([model(HELLO) for model in MODELS])


def stream():
    return same(["".join(model.stream(HELLO)) for model in MODELS])


def structured():
    return same([json.loads(model(PERSON, Person)) for model in MODELS])


def choice():
    return same([model("Yes or no?", Literal["yes", "no"]) for model in MODELS])


def regex():
    return same([model("Which digits?", outlines.types.Regex("[0-9]{3}")) for model in MODELS])


class Call(BaseModel):
    city: str


def tools():
    answers = []
    for model in MODELS:
        talk = outlines.inputs.Chat([{"role": "user", "content": "Call get_weather for Rome."}])
        call = model(talk, Call)
        talk.add_assistant_message(call)
        talk.add_user_message(f"The result of the tool: {get_weather(**json.loads(call))}")
        answers.append(model(talk))
    return same(answers)


def error():
    return error_of(lambda: MODELS[0](LONG))


tell(chat, stream, structured, choice, regex, tools, error)
