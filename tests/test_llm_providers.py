"""Providers against a local server: what streams in, what it cost, what is retried, and what is told when it fails."""

from __future__ import annotations

import json
import time
from email.utils import formatdate

import pytest
from llm_server import Behaviour, serving

from tilebench_core.errors import ConfigError, RequestError
from tilebench_core.llm.provider import ProviderError, ProviderSettings, Request
from tilebench_core.llm.providers.anthropic_messages import AnthropicMessages
from tilebench_core.llm.providers.clients import retry_after_s
from tilebench_core.llm.providers.files import Replay, Scripted
from tilebench_core.llm.providers.openai_compatible import OpenAICompatible
from tilebench_core.llm.retry import Retries, send_patiently
from tilebench_core.llm.usage import Amount, Price, Usage, cost_of, load_prices, price_for, total

KEY = {"operator": "softmax", "backends": ["one"], "dtypes": ["fp16"], "condition": "fair", "round": 0}
OPENAI_USAGE = {
    "prompt_tokens": 1000, "completion_tokens": 300, "prompt_tokens_details": {"cached_tokens": 400},
    "completion_tokens_details": {"reasoning_tokens": 200},
}  # fmt: skip


def request(**values) -> Request:
    return Request(
        **{"model": "m", "prompt": "Write π.", "key": KEY, "max_output_tokens": 64, "deadline_s": 5.0, **values}
    )


def openai(server, **options) -> OpenAICompatible:
    return OpenAICompatible(ProviderSettings(base_url=f"{server.url}/v1", options={"needs_key": False, **options}))


def send(provider, **values):
    seen: list[int] = []
    return provider.send(request(**values), seen.append), seen


def test_a_streamed_reply_of_an_openai_compatible_server_is_kept_whole():
    with serving(Behaviour(text="x" * 1000, usage=OPENAI_USAGE)) as server:
        reply, seen = send(openai(server, extra_body={"top_k": 3}), temperature=0.5, seed=7)
    assert (reply.text, reply.finish, reply.model, reply.response_id) == ("x" * 1000, "stop", "m-served", "chat-1")
    assert reply.usage == Usage(input_tokens=600, cached_input_tokens=400, output_tokens=300, reasoning_tokens=200)
    assert seen[-1] == 1000
    body = server.requests[0]
    assert body["messages"] == [{"role": "user", "content": "Write π."}]
    assert (body["max_completion_tokens"], body["temperature"], body["seed"], body["top_k"]) == (64, 0.5, 7, 3)
    assert "top_p" not in body


def test_a_streamed_reply_of_anthropic_is_kept_whole(monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret-key")
    usage = {"input_tokens": 50, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 5, "output_tokens": 70}
    with serving(Behaviour(text="y" * 900, finish="end_turn", usage=usage)) as server:
        provider = AnthropicMessages(ProviderSettings(base_url=server.url, api_key_env="MY_KEY"))
        assert provider.probe() is None
        reply, _ = send(provider, temperature=0.1)
    assert (reply.text, reply.finish) == ("y" * 900, "stop")
    assert reply.usage == Usage(input_tokens=50, cached_input_tokens=20, cache_write_tokens=5, output_tokens=70)
    assert "secret-key" in server.seen_headers[0].get("x-api-key", server.seen_headers[0].get("authorization", ""))
    assert server.requests[0]["max_tokens"] == 64


def test_an_endpoint_that_tells_no_usage_leaves_it_unknown():
    with serving(Behaviour(text="z", usage=None)) as server:
        reply, _ = send(openai(server))
    assert reply.usage == Usage()
    assert not reply.usage.tokens.complete


@pytest.mark.parametrize(
    ("behaviour", "retry", "may_cost", "message"),
    [
        (Behaviour(status=429, headers={"Retry-After": "7"}), True, False, "HTTP 429"),
        (Behaviour(status=503), True, False, "HTTP 503"),
        (Behaviour(status=401), False, False, "HTTP 401: status 401 of the test"),
        (Behaviour(status=400), False, False, "HTTP 400"),
        (Behaviour(text="x" * 2000, die_after=2), True, True, "broke off"),
        (Behaviour(text="x" * 4000, delay_s=0.2), True, True, "within 1 s|in time"),
        (Behaviour(text="x", garbage=True), True, True, "broke off"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_failures_say_whether_to_try_again_and_whether_they_may_have_cost(
    behaviour, retry, may_cost, message, kind, monkeypatch
):
    monkeypatch.setenv("MY_KEY", "k")
    with serving(behaviour) as server:
        settings = ProviderSettings(base_url=server.url, api_key_env="MY_KEY")
        provider = openai(server) if kind == "openai" else AnthropicMessages(settings)
        with pytest.raises(ProviderError, match=message) as caught:
            send(provider, deadline_s=1.0)
    assert caught.value.retry is retry
    if not behaviour.garbage:  # whether a chunk counts as started before it is read differs between the clients
        assert caught.value.may_cost is may_cost
    if behaviour.headers:
        assert caught.value.after_s == 7.0
    assert len(server.requests) == 1  # the client's own retries are off


def test_no_server_at_all_is_worth_another_try():
    provider = OpenAICompatible(ProviderSettings(base_url="http://127.0.0.1:9/v1", options={"needs_key": False}))
    with pytest.raises(ProviderError, match="no connection") as caught:
        send(provider)
    assert caught.value.retry
    assert not caught.value.may_cost


def test_a_missing_key_names_its_variable(monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(RequestError, match="NO_SUCH_KEY"):
        OpenAICompatible(ProviderSettings(api_key_env="NO_SUCH_KEY")).probe()


def patiently(provider, retries, **values):
    failures, waits, announced = [], [], []
    reply = send_patiently(
        provider,
        request(),
        retries,
        failures.append,
        lambda: announced.append(1),
        lambda: False,
        waits.append,
        **values,
    )
    return reply, failures, sum(waits), len(announced)


def test_retry_after_is_respected_to_the_second_and_every_attempt_is_told():
    slow = Behaviour(status=429, headers={"Retry-After": "3"})
    with serving(slow, Behaviour(status=529), Behaviour(text="done")) as server:
        reply, failures, waited, announced = patiently(openai(server), Retries(attempts=4, first_wait_s=1.0))
    assert reply.text == "done"
    assert [failure["after_s"] for failure in failures] == [3.0, None]
    assert 3.0 + 1.5 <= waited <= 3.0 + 2.5  # the second wait is a jittered 2 s, slept in pieces of half a second
    assert announced == 2


def test_attempts_end_and_a_wait_that_is_too_long_is_not_waited():
    with serving(Behaviour(status=500)) as server, pytest.raises(ProviderError, match="HTTP 500"):
        patiently(openai(server), Retries(attempts=2, first_wait_s=0.1))
    assert len(server.requests) == 2
    slow = Behaviour(status=429, headers={"Retry-After": "900"})
    with serving(slow) as server, pytest.raises(ProviderError, match="asks to wait 900 s"):
        patiently(openai(server), Retries())
    assert len(server.requests) == 1


def test_a_wait_ends_when_the_user_stops():
    with serving(Behaviour(status=503)) as server, pytest.raises(ProviderError):
        send_patiently(openai(server), request(), Retries(first_wait_s=60), lambda f: None, lambda: None, lambda: True)
    assert len(server.requests) == 1


def test_retry_after_as_number_date_and_milliseconds():
    assert retry_after_s({"retry-after": "2.5"}) == 2.5
    assert retry_after_s({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    assert 8 < retry_after_s({"retry-after": formatdate(time.time() + 10, usegmt=True)}) <= 10
    assert retry_after_s({"retry-after": "soon"}) is None
    assert retry_after_s({}) is None


def test_scripted_replies_are_told_apart_by_operator_and_backend(tmp_path):
    script = tmp_path / "replies.yaml"
    script.write_text(
        "replies:\n- {text: a, usage: {input_tokens: 5, output_tokens: 2}}\n- {text: b, operator: relu}\n- {text: c}\n"
    )
    provider = Scripted(ProviderSettings(options={"script": str(script)}))
    assert provider.probe() is None
    assert [provider.send(request(key={**KEY, "round": n}), print).text for n in (0, 1)] == ["a", "c"]
    with pytest.raises(ProviderError, match="2 replies"):
        provider.send(request(key={**KEY, "round": 2}), print)
    script.write_text("replies: 3\n")
    with pytest.raises(ConfigError, match="expected `replies`"):
        Scripted(ProviderSettings(options={"script": str(script)})).send(request(), print)


def test_replay_answers_only_with_the_same_trajectory(tmp_path):
    folder = tmp_path / "llm" / "a-trajectory" / "round_00"
    folder.mkdir(parents=True)
    (folder.parent / "trajectory.json").write_text(json.dumps({"key": {k: v for k, v in KEY.items() if k != "round"}}))
    (folder.parent / "journal.jsonl").write_text("{}")
    reply = {
        "text": "kept",
        "finish": "stop",
        "usage": {"input_tokens": 1},
        "model": "m",
        "response_id": None,
        "seconds": 1.0,
    }
    (folder / "response.json").write_text(json.dumps({**reply, "raw_usage": {}}))
    provider = Replay(ProviderSettings(options={"archive": str(tmp_path)}))
    assert provider.probe() is None
    assert provider.send(request(), print).text == "kept"
    with pytest.raises(ProviderError, match="no reply"):
        provider.send(request(key={**KEY, "dtypes": ["fp32"]}), print)


PRICE = Price(model="m", as_of="2025-01-01", input=2.0, output=10.0, cached_input=0.5, cache_write=2.5)


def test_money_by_hand():
    usage = Usage(
        input_tokens=600, cached_input_tokens=400, cache_write_tokens=100, output_tokens=300, reasoning_tokens=200
    )
    # 600·2 + 400·0.5 + 100·2.5 + 300·10 = 4650 dollars per million: the reasoning is inside the 300
    assert cost_of(usage, PRICE) == Amount(4650e-6, True)
    assert usage.tokens == Amount(1400.0, True)


def test_what_is_unknown_makes_a_lower_bound():
    assert cost_of(Usage(input_tokens=600, output_tokens=None, cached_input_tokens=0), PRICE) == Amount(1200e-6, False)
    assert cost_of(Usage(input_tokens=600, output_tokens=0), PRICE) == Amount(300e-6, False)  # perhaps all was cached
    assert cost_of(Usage(input_tokens=1, output_tokens=1), None) == Amount(0.0, False)
    assert str(total([Amount(1.0), Amount(2.0, False)])) == "≥ 3"


def test_nonsense_usage_is_refused():
    with pytest.raises(ConfigError, match="negative"):
        Usage(input_tokens=-1)
    with pytest.raises(ConfigError, match="reasoning"):
        Usage(output_tokens=5, reasoning_tokens=6)


def test_the_price_table_is_dated_and_matched_in_order():
    from tilebench_core.compose import conf_dir

    prices = load_prices(conf_dir() / "llm" / "prices.yaml")
    assert all(len(price.as_of) == 10 and price.source for price in prices)
    assert price_for("gpt-5-mini-2025-08-07", prices, None).input == 0.25
    assert price_for("an-unknown-model", prices, None) is None
    assert price_for("x", prices, {"input": 1, "output": 2}).as_of == "given with the run"
