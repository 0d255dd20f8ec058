"""The command line: starts the flows and shows what they found."""
