from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = Path("/usr/bin/chromium")
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

# The machine may be slow: that says nothing about the code.
settings.register_profile("rag-eval", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rag-eval")


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[None]:
    """A real Prefect server with a database of its own, for the whole session."""
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    # Without heartbeats a flow run ends a second sooner.
    with (
        prefect_test_harness(server_startup_timeout=300),
        temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}),
    ):
        yield


@pytest.fixture(scope="module")
def chromium() -> "Iterator[Browser]":
    """A browser for the tests of one file: while it is open its event loop is in the way of those of other tests."""
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not there: no page can be opened")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        yield browser
        browser.close()
