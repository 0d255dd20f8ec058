"""Writing truth that was carried over, so that nothing of the old is lost."""

from dataclasses import replace
from pathlib import Path

from rag_eval.errors import GroundTruthError
from rag_eval.ground_truth.drift.outcomes import ReanchorReport
from rag_eval.ground_truth.native import read_token_level
from rag_eval.ground_truth.writing import rewrite_token_level, write_token_level
from rag_eval.types.ground_truth import TokenLevelGroundTruth


def keep_reanchored(report: ReanchorReport, source: Path, path: Path) -> Path | None:
    """Write the truth of the file ``source`` as it is now, and what it lost to a file beside it, which is given back.

    None when nothing was lost. Each file is replaced at once or not at all, the one with the lost spans first. Only the
    lines of queries with other spans are written anew. What an earlier call has left in the file of lost spans stays
    there too. Raises ``GroundTruthError`` when no query is left, ``ArtifactError`` when a file cannot be written.
    """
    check_not_empty(report)
    lost, place = report.lost_truth(), None
    if lost:
        place = path.with_name(f"{path.stem}.lost{path.suffix or '.jsonl'}")
        earlier = read_token_level(place) if place.exists() else []
        write_token_level(place, _joined(earlier, lost))
    rewrite_token_level(path, source, report.truth)
    return place


def check_not_empty(report: ReanchorReport) -> None:
    """Raise ``GroundTruthError`` when no query is left."""
    if not report.truth:
        raise GroundTruthError(
            f"not one of the {len(report.unanswered)} queries has a span that is in the corpus: "
            "check the corpus folder and its pattern"
        )


def _joined(earlier: list[TokenLevelGroundTruth], lost: list[TokenLevelGroundTruth]) -> list[TokenLevelGroundTruth]:
    found = {item.query.id: item for item in earlier}
    for item in lost:
        known = found.setdefault(item.query.id, item)
        spans = list(dict.fromkeys((*known.relevant_spans, *item.relevant_spans)))
        found[item.query.id] = replace(known, relevant_spans=spans)
    return list(found.values())
