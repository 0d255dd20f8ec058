"""General experiments: any task on any data with any evaluators.

::

    from rag_eval.experiments import CosineSimilarity, evaluatorq

    evaluatorq("Greeting", data=[{"input": "Hello", "output": "Hi"}], tasks=[answer], evaluators=[CosineSimilarity])
"""

from rag_eval.lazy import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
