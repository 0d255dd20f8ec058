"""One task a stage."""

from rag_eval.pipeline import stages
from tasks.caching import stage_task

load_corpus = stage_task(stages.load_corpus)
load_ground_truth = stage_task(stages.load_ground_truth)
chunk = stage_task(stages.chunk)
embed = stage_task(stages.embed)
index = stage_task(stages.index)
retrieve_by_vector = stage_task(stages.retrieve_by_vector)
retrieve_by_words = stage_task(stages.retrieve_by_words)
fuse = stage_task(stages.fuse)
rerank = stage_task(stages.rerank)
score = stage_task(stages.score)
