"""Ask language models: requests, cached answers, budgets, and parts that write texts."""
