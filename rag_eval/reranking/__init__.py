"""Putting retrieved candidates into a better order."""
