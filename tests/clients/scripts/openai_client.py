import json

from common import HELLO, KEY, LONG, PERSON, URL, WEATHER, error_of, get_weather, tell, user
from openai import OpenAI
from pydantic import BaseModel

client = OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)


class Person(BaseModel):
    name: str
    age: int


def chat():
    done = client.chat.completions.create(model="any", messages=user(HELLO))
    return done.choices[0].message.content


def stream():
    chunks = client.chat.completions.create(model="any", messages=user(HELLO), stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def structured():
    done = client.chat.completions.parse(model="any", messages=user(PERSON), response_format=Person)
    return done.choices[0].message.parsed.model_dump()


def tools():
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    offered = [{"type": "function", "function": {"name": "get_weather", "parameters": schema}}]
    messages = user(WEATHER)
    while True:
        done = client.chat.completions.create(model="any", messages=messages, tools=offered)
        message = done.choices[0].message
        if not message.tool_calls:
            return message.content
        messages.append(message)
        for call in message.tool_calls:
            result = get_weather(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


def error():
    return error_of(lambda: client.chat.completions.create(model="any", messages=user(LONG)))


tell(chat, stream, structured, tools, error)
