from tests.doubles.langsmith_fixtures import client, no_langsmith_settings, server

__all__ = ["client", "no_langsmith_settings", "server"]
