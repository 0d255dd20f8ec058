"""One task a stage."""

from rag_eval.pipeline import stages
from tasks.caching import stage_task

load_corpus = stage_task(stages.load_corpus)
load_ground_truth = stage_task(stages.load_ground_truth)
chunk = stage_task(stages.chunk)
embed = stage_task(stages.embed)
index = stage_task(stages.index)
retrieve = stage_task(stages.retrieve)
score = stage_task(stages.score)
