import json

from common import HELLO, KEY, LONG, PERSON, SCHEMA, URL, WEATHER, error_of, get_weather, tell, user
from smolagents import OpenAIServerModel, ToolCallingAgent, tool

model = OpenAIServerModel("any", api_base=f"{URL}/v1", api_key=KEY)


def chat():
    return model.generate(user(HELLO)).content


def stream():
    return "".join(delta.content or "" for delta in model.generate_stream(user(HELLO)))


def structured():
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
    return json.loads(model.generate(user(PERSON), response_format=form).content)


def tools():
    agent = ToolCallingAgent(tools=[tool(get_weather)], model=model, verbosity_level=0, max_steps=3)
    return agent.run(WEATHER)


def error():
    return error_of(lambda: model.generate(user(LONG)))


tell(chat, stream, structured, tools, error)
