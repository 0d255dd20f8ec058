import hashlib

import pytest

from rag_eval import generate_chunk_id, generate_pa_chunk_id, generate_query_id
from rag_eval.errors import TextEncodingError


def test_ids_are_a_prefix_and_the_start_of_the_sha256() -> None:
    digest = hashlib.sha256("naïve 👩🏽‍🚀".encode()).hexdigest()
    assert generate_chunk_id("naïve 👩🏽‍🚀") == f"chunk_{digest[:12]}"
    assert generate_pa_chunk_id("naïve 👩🏽‍🚀") == f"pa_chunk_{digest[:12]}"
    assert generate_query_id("naïve 👩🏽‍🚀") == f"query_{digest[:8]}"


def test_a_lone_surrogate_has_no_id() -> None:
    with pytest.raises(TextEncodingError, match="lone surrogate at character 3"):
        generate_chunk_id("abc\ud800def")
