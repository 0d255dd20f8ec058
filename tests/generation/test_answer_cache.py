"""Answers on disk: found again, never half, and asked for once by all who want them."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rag_eval.errors import ArtifactError
from rag_eval.llm.chat import Answer, AnswerCache

DIGEST = "ab" * 32


def answer(content: str = "x", finish_reason: str = "stop", limit: int | None = None) -> Answer:
    return Answer(
        content=content,
        refusal=None,
        finish_reason=finish_reason,
        input_tokens=1,
        output_tokens=2,
        max_output_tokens=limit,
    )


def test_an_answer_is_found_again(tmp_path: Path) -> None:
    cache = AnswerCache(tmp_path)
    assert cache.find(DIGEST) is None
    ugly = answer("\0\u2028\x1b[31m<|endoftext|>👩🏽‍🦽\r\n")
    cache.keep(DIGEST, ugly)
    assert AnswerCache(tmp_path).find(DIGEST) == ugly
    assert cache.find("cd" * 32) is None


def test_an_answer_that_was_cut_serves_no_higher_limit(tmp_path: Path) -> None:
    cache = AnswerCache(tmp_path)
    cache.keep(DIGEST, answer(finish_reason="length", limit=100))
    assert cache.find(DIGEST, 100) is not None
    assert cache.find(DIGEST, 50) is not None
    assert cache.find(DIGEST, 101) is None
    assert cache.find(DIGEST, None) is None
    cache.keep(DIGEST, answer(limit=100))
    assert cache.find(DIGEST, None) is not None


def test_an_unwritable_cache_is_an_error_before_asking(tmp_path: Path) -> None:
    cache = AnswerCache(tmp_path / "file" / "answers")
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="cannot be created"):
        cache.locked(DIGEST, threading.Event())


def test_threads_that_want_one_answer_ask_once(tmp_path: Path) -> None:
    asked: list[int] = []

    def want(number: int) -> Answer | None:
        cache = AnswerCache(tmp_path)
        with cache.locked(DIGEST, threading.Event()):
            if cache.find(DIGEST) is None:
                asked.append(number)
                threading.Event().wait(0.1)
                cache.keep(DIGEST, answer(str(number)))
        return cache.find(DIGEST)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(want, range(8)))
    assert len(asked) == 1
    assert found == [answer(str(asked[0]))] * 8


def test_waiting_ends_when_asking_is_stopped(tmp_path: Path) -> None:
    cache, stopped, inside = AnswerCache(tmp_path), threading.Event(), threading.Event()

    def wait() -> None:
        with cache.locked(DIGEST, stopped):
            inside.set()

    with cache.locked(DIGEST, threading.Event()):
        thread = threading.Thread(target=wait)
        thread.start()
        assert not inside.wait(0.2)
        stopped.set()
        assert inside.wait(5)
        thread.join()
