"""Ground truth into LangSmith and back: nothing doubled, nothing altered."""

from dataclasses import replace
from typing import Any

import pytest
from langsmith import Client
from langsmith.schemas import DataType

from rag_eval.errors import GroundTruthError, TextEncodingError
from rag_eval.services.langsmith_client import LangSmithService
from rag_eval.services.langsmith_datasets import PushReport, push_truth, record_of
from rag_eval.services.langsmith_truth import pull_truth
from rag_eval.types.evidence import ChunkLevelGroundTruth, Query, TokenLevelGroundTruth
from rag_eval.types.ids import ChunkId
from tests.doubles.langsmith_server import LangSmithServer
from tests.doubles.langsmith_truth import chunk_level, span, spans_of, token_level


def counts(report: PushReport) -> tuple[int, int, int, int, int]:
    return report.created, report.updated, report.unchanged, report.deleted, report.others


def examples_of(server: LangSmithServer) -> dict[str, dict[str, Any]]:
    return {one["inputs"]["query"]: one for one in server.api.examples.values()}


def test_both_schemas_come_back_as_they_went(server: LangSmithServer, service: LangSmithService) -> None:
    report = push_truth(service, "spans", token_level())
    assert counts(report) == (3, 0, 0, 0, 0)
    assert report.url
    push_truth(service, "chunks", chunk_level())
    assert pull_truth(service, "spans") == token_level()
    assert pull_truth(service, "chunks") == chunk_level()
    both = examples_of(server)["both?"]
    assert both["outputs"].keys() == {"relevant_spans"}
    assert both["outputs"]["relevant_spans"][0] == {"doc_id": "a.md", "start": 7, "end": 8, "text": "x"}
    assert both["metadata"] == {**token_level()[0].query.metadata, "query_id": "q1", "dataset_split": ["base"]}
    assert {one["description"] for one in server.api.datasets.values()} == {
        "Ground truth for token-level evaluation of retrieval",
        "Ground truth for chunk-level evaluation of retrieval",
    }


def test_groups_come_back_as_they_went(server: LangSmithServer, service: LangSmithService, client: Client) -> None:
    one, copy = span("x", start=7), span("x", start=99)
    query = token_level()[0].query
    grouped = TokenLevelGroundTruth(query, [one], alternatives={one: [copy]}, origins={copy: "copy"})
    push_truth(service, "spans", [grouped])
    assert pull_truth(service, "spans") == [grouped]
    (sent,) = examples_of(server).values()
    record = {"doc_id": "a.md", "start": 7, "end": 8, "text": "x"}
    told = record | {"alternatives": [record | {"start": 99, "end": 100, "origin": "copy"}]}
    assert sent["outputs"]["relevant_spans"] == [told]
    a, b = ChunkId("a"), ChunkId("b")
    ids = ChunkLevelGroundTruth(query, [a], alternatives={a: [b]}, origins={b: "copy"})
    push_truth(service, "chunks", [ids])
    assert pull_truth(service, "chunks") == [ids]
    outputs = {"relevant_spans": [record | {"alternatives": [{"doc_id": "a.md"}]}]}
    client.create_example(inputs={"query": "bad?"}, reference_outputs=outputs, dataset_name="spans")
    with pytest.raises(GroundTruthError, match=r"'relevant_spans', item 0: alternatives\.0\.start: Field required"):
        pull_truth(service, "spans")
    client.create_example(
        inputs={"query": "bad?"},
        reference_outputs={"relevant_chunk_ids": ["a"], "alternatives": ["b"]},
        dataset_name="chunks",
    )
    with pytest.raises(GroundTruthError, match=r"example .*: alternatives: Input should be a valid dict"):
        pull_truth(service, "chunks")


def test_what_the_metadata_does_not_say_is_added() -> None:
    (item,) = spans_of("when?")
    assert record_of(item)["metadata"] == {
        "generation_type": "manual",
        "source_docs": ["a.md"],
        "query_id": item.query.id,
    }


def test_pushing_again_updates_and_doubles_nothing(server: LangSmithServer, service: LangSmithService) -> None:
    one, two, three = spans_of("one?", "two?", "three?")
    push_truth(service, "spans", [one, two])
    ids = sorted(server.api.examples)
    sent = len(server.requests)
    assert counts(push_truth(service, "spans", [one, two])) == (0, 0, 2, 0, 0)
    assert {request.method for request in server.requests[sent:]} == {"GET"}
    changed = replace(two, relevant_spans=[span("another answer", start=99)])
    assert counts(push_truth(service, "spans", [changed, three])) == (1, 1, 0, 0, 1)
    assert examples_of(server)["two?"]["outputs"]["relevant_spans"][0]["start"] == 99
    assert set(ids) < set(server.api.examples)
    assert len(server.api.examples) == 3
    assert counts(push_truth(service, "spans", [changed, three], delete_others=True)) == (0, 0, 2, 1, 0)
    assert examples_of(server).keys() == {"two?", "three?"}
    assert len(server.api.datasets) == 1


def test_a_second_example_of_a_query_is_another_one(
    server: LangSmithServer, service: LangSmithService, client: Client
) -> None:
    (item,) = spans_of("one?")
    push_truth(service, "spans", [item])
    record = record_of(item)
    client.create_example(
        inputs=record["inputs"],
        reference_outputs=record["outputs"],
        metadata=record["metadata"],
        dataset_name="spans",
    )
    assert counts(push_truth(service, "spans", [item])) == (0, 0, 1, 0, 1)
    assert counts(push_truth(service, "spans", [item], delete_others=True)) == (0, 0, 1, 1, 0)
    assert len(pull_truth(service, "spans")) == len(server.api.examples) == 1


def test_the_split_that_somebody_chose_there_stays(
    server: LangSmithServer, service: LangSmithService, client: Client
) -> None:
    (item,) = spans_of("one?")
    push_truth(service, "spans", [item])
    (example,) = client.list_examples(dataset_name="spans")
    client.update_example(example.id, split="test", dataset_id=example.dataset_id)
    assert counts(push_truth(service, "spans", [item])) == (0, 0, 1, 0, 0)
    push_truth(service, "spans", [replace(item, relevant_spans=[span("z")])])
    assert examples_of(server)["one?"]["metadata"]["dataset_split"] == ["test"]
    (back,) = pull_truth(service, "spans")
    assert back.query.metadata["dataset_split"] == ["test"]


def test_examples_made_elsewhere_are_known_by_the_question_and_read_in_any_spelling(
    server: LangSmithServer, service: LangSmithService, client: Client
) -> None:
    dataset = client.create_dataset("spans")
    old_span = {"docId": "b.md", "start": 0, "end": 1, "text": "x"}
    outputs = {"relevantSpans": [old_span], "metadata": {"generationType": "synthetic", "sourceDocs": ["b.md"]}}
    metadata = {"queryType": "simple", "generation_model": "m", "generationModel": "older"}
    client.create_examples(
        dataset_id=dataset.id,
        examples=[{"inputs": {"query": "one?"}, "reference_outputs": outputs, "metadata": metadata}],
    )
    (back,) = pull_truth(service, "spans")
    assert isinstance(back, TokenLevelGroundTruth)
    assert back.relevant_spans == (span("x", "b.md", 0),)
    assert back.query.metadata == {
        "generation_type": "synthetic",
        "source_docs": ["b.md"],
        "query_type": "simple",
        "generation_model": "m",
    }
    mine = TokenLevelGroundTruth(Query.from_text("one?"), [span("y")])
    named = replace(mine, query=replace(mine.query, id="my-own-id"))
    assert counts(push_truth(service, "spans", [named])) == (0, 1, 0, 0, 0)
    assert pull_truth(service, "spans")[0].query.id == "my-own-id"


def test_a_dataset_of_the_other_type_is_refused_by_name(
    server: LangSmithServer, service: LangSmithService, client: Client
) -> None:
    push_truth(service, "spans", token_level())
    with pytest.raises(GroundTruthError, match=r"'spans' has token-level ground truth .* is chunk-level"):
        push_truth(service, "spans", chunk_level())
    client.create_dataset("chats", data_type=DataType.chat)
    with pytest.raises(GroundTruthError, match="'chats' is of the type 'chat'"):
        push_truth(service, "chats", token_level())
    assert len(server.api.examples) == 3


def test_what_cannot_be_pulled_is_named(server: LangSmithServer, service: LangSmithService, client: Client) -> None:
    with pytest.raises(GroundTruthError, match="there is no LangSmith dataset 'none'"):
        pull_truth(service, "none")
    rows: dict[str, list[dict[str, Any]]] = {
        "mixed": [{"relevant_spans": []}, {"relevant_chunk_ids": []}],
        "neither": [{"answer": "noon"}],
        "twice": [{"relevant_chunk_ids": ["c"]}, {"chunk_ids": ["d"]}],
    }
    for name, outputs in rows.items():
        dataset = client.create_dataset(name)
        examples = [{"inputs": {"query": "when?"}, "reference_outputs": one} for one in outputs]
        client.create_examples(dataset_id=dataset.id, examples=examples)
    with pytest.raises(GroundTruthError, match="'mixed' has both token-level and chunk-level ground truth"):
        pull_truth(service, "mixed")
    with pytest.raises(GroundTruthError, match="'neither' has neither token-level nor chunk-level"):
        pull_truth(service, "neither")
    with pytest.raises(GroundTruthError, match=r"two examples of the LangSmith dataset 'twice' have the query query_"):
        pull_truth(service, "twice")


def test_nothing_and_half_characters_are_refused_before_anything_is_sent(
    server: LangSmithServer, service: LangSmithService
) -> None:
    sent = len(server.requests)
    with pytest.raises(GroundTruthError, match="no ground truth to push to 'spans'"):
        push_truth(service, "spans", [])
    half = TokenLevelGroundTruth(Query("q", "when \ud83d?"), [span("x")])  # type: ignore[arg-type]
    with pytest.raises(TextEncodingError, match="lone surrogate"):
        push_truth(service, "spans", [half])
    assert len(server.requests) == sent


def test_a_large_push_that_is_cut_short_is_completed(server: LangSmithServer, service: LangSmithService) -> None:
    truth = spans_of(*(f"question {number}?" for number in range(250)))
    server.fail("POST", r"/v1/platform/datasets/.*", status=403)
    with pytest.raises(Exception, match="refused the key"):
        push_truth(service, "spans", truth, only_if_new=True)
    push_truth(service, "spans", truth[:150])
    # Made from this very ground truth, and half there.
    (dataset,) = server.api.datasets.values()
    assert len(server.api.examples) == 150
    report = push_truth(service, "spans", truth, only_if_new=True)
    assert (report.created, report.unchanged, len(server.api.examples)) == (100, 150, 250)
    assert dataset["example_count"] == 250


def test_a_dataset_with_examples_of_its_own_is_left_alone_when_only_new_ones_are_wanted(
    server: LangSmithServer, service: LangSmithService
) -> None:
    one, two = spans_of("one?", "two?")
    push_truth(service, "spans", [one])
    assert counts(push_truth(service, "spans", [two], only_if_new=True)) == (0, 0, 0, 0, 1)
    assert examples_of(server).keys() == {"one?"}


def test_an_answer_that_got_lost_doubles_nothing(server: LangSmithServer, service: LangSmithService) -> None:
    """The service takes the examples and the dataset, and the connection breaks before it says so."""
    for path in ("/datasets", r"/v1/platform/datasets/.*"):
        server.lose_answer("POST", path)
    report = push_truth(service, "spans", token_level())
    assert (len(server.api.datasets), len(server.api.examples)) == (1, 3)
    assert report.created + report.unchanged == 3
