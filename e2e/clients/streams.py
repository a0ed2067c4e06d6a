"""What clients make of a stream that is cut: python streams.py URL, of a proxy whose rules are in streams.json.

Each line is a client, how its stream is cut, how it ends there, and how many seconds it took. The upstream goes on
for 8 seconds.
"""

import json
import sys
import time

import anthropic
import litellm
import openai
from google import genai
from google.genai import types
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI

url = sys.argv[1]
hello = [{"role": "user", "content": "hi"}]


def openai_client(headers):
    return openai.OpenAI(base_url=url + "/v1", api_key="k", default_headers=headers, max_retries=0)


def openai_create(headers):
    return list(openai_client(headers).chat.completions.create(model="m", messages=hello, stream=True))[-1].choices[0].finish_reason


def openai_helper(headers):
    with openai_client(headers).chat.completions.stream(model="m", messages=hello) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion().choices[0].finish_reason


def openai_responses(headers):
    return list(openai_client(headers).responses.create(model="m", input="hi", stream=True))[-1].type


def anthropic_create(headers):
    client = anthropic.Anthropic(base_url=url, api_key="k", default_headers=headers, max_retries=0)
    return [event.delta.stop_reason for event in client.messages.create(model="m", max_tokens=99, messages=hello, stream=True)
            if event.type == "message_delta"][-1]


def anthropic_helper(headers):
    client = anthropic.Anthropic(base_url=url, api_key="k", default_headers=headers, max_retries=0)
    with client.messages.stream(model="m", max_tokens=99, messages=hello) as stream:
        return stream.get_final_message().stop_reason


def gemini(headers):
    client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=url, headers=headers))
    return list(client.models.generate_content_stream(model="m", contents="hi"))[-1].candidates[0].finish_reason.value


def langchain_openai(headers):
    model = ChatOpenAI(model="m", base_url=url + "/v1", api_key="k", default_headers=headers, max_retries=0)
    return [c.response_metadata["finish_reason"] for c in model.stream("hi") if c.response_metadata.get("finish_reason")][-1]


def langchain_anthropic(headers):
    model = ChatAnthropic(model="m", base_url=url, api_key="k", default_headers=headers, max_retries=0)
    return [c.response_metadata["stop_reason"] for c in model.stream("hi") if c.response_metadata.get("stop_reason")][-1]


def litellm_openai(headers):
    chunks = list(litellm.completion(model="openai/m", api_base=url + "/v1", api_key="k", messages=hello, extra_headers=headers,
                                     stream=True, num_retries=0))
    return [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason][-1]


for call in [openai_create, openai_helper, openai_responses, anthropic_create, anthropic_helper, gemini, langchain_openai,
             langchain_anthropic, litellm_openai]:
    for cut in ["end", "error"]:
        start = time.monotonic()
        try:
            outcome = "ends, " + str(call({"x-cut": cut, "x-case": call.__name__}))
        except Exception as error:  # the subject of the whole
            outcome = type(error).__name__
        print(json.dumps([call.__name__, cut, outcome, round(time.monotonic() - start, 1)]), flush=True)
