"""Manage the runs of a workspace: outcomes, comparison, gate, baseline, history, publishing."""
