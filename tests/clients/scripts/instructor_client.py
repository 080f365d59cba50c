"""instructor turns tool calls into objects and runs none, so the loop is written here."""

from collections.abc import Iterable

import instructor
from common import HELLO, KEY, LONG, PERSON, URL, WEATHER, error_of, get_weather, tell, user
from openai import OpenAI
from pydantic import BaseModel

plain = OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)


class Person(BaseModel):
    name: str
    age: int


def asked(mode, text, **fields):
    client = instructor.from_openai(plain, mode=mode)
    return client.chat.completions.create(
        model="any", messages=user(text), max_retries=0, **{"response_model": Person, **fields}
    )


def chat():
    done = asked(instructor.Mode.TOOLS, HELLO, response_model=None)
    return done.choices[0].message.content


def structured():
    found = asked(instructor.Mode.JSON_SCHEMA, PERSON)
    assert found.model_dump() == asked(instructor.Mode.JSON, PERSON).model_dump()
    return found.model_dump()


def structured_tools():
    return asked(instructor.Mode.TOOLS, "Extract the person.").model_dump()


def structured_parallel():
    """Calls that the model makes without being forced to."""
    found = asked(instructor.Mode.PARALLEL_TOOLS, "Extract both.", response_model=Iterable[Person])
    return [each.model_dump() for each in found]


class GetWeather(BaseModel):
    """Get the weather in a city."""

    model_config = {"title": "get_weather"}
    city: str


GetWeather.__name__ = "get_weather"  # the name of the tool


def tools():
    client = instructor.from_openai(plain, mode=instructor.Mode.PARALLEL_TOOLS)
    answers = []
    client.on("completion:response", answers.append)
    calls = client.chat.completions.create(
        model="any", messages=user(WEATHER), max_retries=0, response_model=Iterable[GetWeather]
    )
    results = [get_weather(call.city) for call in calls]
    message = answers[0].choices[0].message
    said = [
        {"role": "tool", "tool_call_id": call.id, "content": result}
        for call, result in zip(message.tool_calls, results, strict=True)
    ]
    done = client.chat.completions.create(
        model="any", messages=[*user(WEATHER), message.model_dump(), *said], response_model=None
    )
    return done.choices[0].message.content


def stream():
    client = instructor.from_openai(plain, mode=instructor.Mode.JSON_SCHEMA)
    parts = client.chat.completions.create_partial(
        model="any", messages=user(PERSON), response_model=Person, max_retries=0
    )
    return [part.model_dump() for part in parts][-1]


def error():
    return error_of(lambda: asked(instructor.Mode.JSON_SCHEMA, LONG))


tell(chat, structured, structured_tools, structured_parallel, tools, stream, error)
