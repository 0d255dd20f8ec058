"""Prefect tasks: the library's stages with a cache key."""
