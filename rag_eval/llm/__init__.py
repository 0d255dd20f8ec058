"""Language models: the client, chat requests and answers, answers that are kept, and what they cost."""
