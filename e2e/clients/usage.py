"""What clients see of streams whose usage a proxy asks for: python usage.py STREAMS UPSTREAM PROXY PROXY.

Each client makes its calls of the upstream, and of each proxy. Each line is a call, and whether its client sees the same
everywhere. Then so many streams run, half of which ask for their usage themselves; their line is how many saw what they
should.
"""

import asyncio
import json
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or else it asks GitHub

import anthropic
import boto3
import litellm
import openai
from botocore.config import Config
from google import genai
from google.genai import types
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI

streams, upstream, proxies = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
hello = [{"role": "user", "content": "hi"}]
asking = {"stream_options": {"include_usage": True}}


def dumped(chunks):
    return [c.model_dump() for c in chunks]


def openai_of(url):
    return openai.OpenAI(base_url=url + "/v1", api_key="k", max_retries=0)


def openai_chat(url):
    return dumped([openai_of(url).chat.completions.create(model="m", messages=hello, max_tokens=11)])


def openai_stream(url):
    return dumped(openai_of(url).chat.completions.create(model="m", messages=hello, max_tokens=12, stream=True))


def openai_asks(url):
    return dumped(openai_of(url).chat.completions.create(model="m", messages=hello, max_tokens=13, stream=True, **asking))


def openai_helper(url):
    with openai_of(url).chat.completions.stream(model="m", messages=hello, max_tokens=14) as stream:
        return [type(event).__name__ for event in stream] + dumped([stream.get_final_completion()])


def openai_responses(url):
    return dumped(openai_of(url).responses.create(model="m", input="hi", max_output_tokens=15, stream=True))


def anthropic_stream(url):
    client = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)
    return dumped(client.messages.create(model="m", max_tokens=16, messages=hello, stream=True))


def anthropic_helper(url):
    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0).messages.stream(model="m", max_tokens=17, messages=hello) as stream:
        return [event.type for event in stream] + dumped([stream.get_final_message()])


def gemini(url):
    client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=url))
    return [[c.text, c.usage_metadata.model_dump()] for c in
            client.models.generate_content_stream(model="m", contents="hi", config=types.GenerateContentConfig(max_output_tokens=18))]


def bedrock(url):
    client = boto3.client("bedrock-runtime", endpoint_url=url, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b",
                          config=Config(retries={"total_max_attempts": 1}))
    call = {"modelId": "m", "messages": [{"role": "user", "content": [{"text": "hi"}]}], "inferenceConfig": {"maxTokens": 19}}
    return [client.converse(**call)["usage"], list(client.converse_stream(**call)["stream"])]


def langchain_openai(url, **more):
    model = ChatOpenAI(model="m", base_url=url + "/v1", api_key="k", max_retries=0, max_tokens=20, **more)
    return [[c.content, c.response_metadata, c.usage_metadata] for c in model.stream("hi")]


def langchain_silent(url):
    return langchain_openai(url, stream_usage=False)


def langchain_anthropic(url):
    model = ChatAnthropic(model="m", base_url=url, api_key="k", max_retries=0, max_tokens=21)
    return [[c.content, c.response_metadata, c.usage_metadata] for c in model.stream("hi")]


def litellm_openai(url):
    chunks = litellm.completion(model="openai/m", api_base=url + "/v1", api_key="k", messages=hello, max_tokens=22, stream=True, num_retries=0)
    return [{**c.model_dump(), "id": 0, "created": 0} for c in chunks]


for call in [openai_chat, openai_stream, openai_asks, openai_helper, openai_responses, anthropic_stream, anthropic_helper, gemini, bedrock,
             langchain_openai, langchain_silent, langchain_anthropic, litellm_openai]:
    want = call(upstream)
    for url in proxies:
        if (got := call(url)) != want:
            print(call.__name__, "sees", got, "in place of", want, flush=True)
            break
    else:
        print(json.dumps([call.__name__, "the same"]), flush=True)


async def many():
    clients = [openai.AsyncOpenAI(base_url=url + "/v1", api_key="k", max_retries=0) for url in proxies]
    at_once, right = asyncio.Semaphore(50), 0

    async def one(i):
        nonlocal right
        async with at_once:
            chunks = [c async for c in await clients[i % 2].chat.completions.create(
                model="m", messages=hello, max_tokens=1 + i % 97, stream=True, **(asking if i // 2 % 2 else {}))]
        told = [c.usage.total_tokens for c in chunks if c.usage]
        right += told == ([10 + i % 97] if i // 2 % 2 else []) and all(c.choices or c.usage for c in chunks)

    await asyncio.gather(*(one(i) for i in range(streams)))
    print(json.dumps(["streams", right]), flush=True)


asyncio.run(many())
