"""Turning texts into vectors."""
