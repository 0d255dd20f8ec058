"""Language models: clients, prompts, answers that are kept, budget and ledger."""
