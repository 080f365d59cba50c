import warnings

from common import HELLO, KEY, LONG, PERSON, URL, WEATHER, error_of, get_weather, tell, user
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent
from pydantic import BaseModel

warnings.simplefilter("ignore")
model = ChatOpenAI(model="any", base_url=f"{URL}/v1", api_key=KEY, max_retries=0)


class Person(BaseModel):
    name: str
    age: int


def chat():
    return model.invoke(HELLO).content


def stream():
    return "".join(chunk.content for chunk in model.stream(HELLO))


def structured():
    return model.with_structured_output(Person, method="json_schema").invoke(PERSON).model_dump()


def tools():
    agent = create_react_agent(model, [tool(get_weather)])
    return agent.invoke({"messages": user(WEATHER)})["messages"][-1].content


def error():
    return error_of(lambda: model.invoke(LONG))


tell(chat, stream, structured, tools, error)
