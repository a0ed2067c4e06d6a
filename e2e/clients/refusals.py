"""What the providers' own clients make of a refusal: python refusals.py URL, of a proxy whose rules are in refusals.json.

Each line is a client, a case, the error that it raised with its code, and how many requests its second call made, of which the
URL's /attempts tells.
"""

import json
import os
import sys
import urllib.request

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or else it asks GitHub

import anthropic
import boto3
import litellm
import openai
from botocore.config import Config
from google import genai
from google.genai import types
from langchain_openai import ChatOpenAI

url = sys.argv[1]


def attempts():
    return int(urllib.request.urlopen(url + "/attempts").read())


def openai_call(case):
    client = openai.OpenAI(base_url=url + "/v1", api_key="k", default_headers={"x-case": case})
    client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], max_tokens=9)


def anthropic_call(case):
    client = anthropic.Anthropic(base_url=url, api_key="k", default_headers={"x-case": case})
    client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}])


def gemini_call(case):
    client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=url, headers={"x-case": case}))
    client.models.generate_content(model="m", contents="hi", config=types.GenerateContentConfig(max_output_tokens=9))


def bedrock_call(case):
    client = boto3.client("bedrock-runtime", endpoint_url=url, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b",
                          config=Config(retries={"mode": "standard"}))
    client.meta.events.register("before-send.*", lambda request, **_: request.headers.__setitem__("x-case", case))
    client.converse(modelId="m", messages=[{"role": "user", "content": [{"text": "hi"}]}], inferenceConfig={"maxTokens": 9})


def langchain_call(case):
    ChatOpenAI(model="m", base_url=url + "/v1", api_key="k", default_headers={"x-case": case + " langchain"}, max_tokens=9).invoke("hi")


def litellm_call(case):
    litellm.completion(model="openai/m", api_base=url + "/v1", api_key="k", messages=[{"role": "user", "content": "hi"}],
                       extra_headers={"x-case": case + " litellm"}, max_tokens=9)


def told(error):
    """The class of an error, and what it tells of why."""
    code = getattr(error, "code", None) or getattr(error, "type", None)
    if isinstance(error, openai.APIStatusError):
        code = f"{error.type}, {error.code}"
    if isinstance(error, anthropic.APIStatusError):
        code = error.body["error"]["type"]
    if hasattr(error, "response") and isinstance(error.response, dict):
        code = error.response["Error"]["Code"]
    if hasattr(error, "status") and isinstance(error.status, str):
        code = error.status
    return f"{type(error).__name__}, {code}"


for name, call in {"openai": openai_call, "anthropic": anthropic_call, "gemini": gemini_call, "bedrock": bedrock_call,
                   "langchain": langchain_call, "litellm": litellm_call}.items():
    for case in ["seconds", "hour", "month"]:
        outcome = "passes"
        try:
            call(case)  # which uses up the limit
            attempts()
            call(case)
        except Exception as error:  # the subject of the whole
            outcome = told(error)
        print(json.dumps([name, case, outcome, attempts()]), flush=True)
