import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = Path("/usr/bin/chromium")
# The suggestions below the address bar are two pages of their own for every page, which take longer than most of ours.
# The others are Playwright's, in the place of which Chromium takes these.
CHROMIUM_WITHOUT = """WebUIOmniboxPopup WebUIOmniboxAimPopup WebUIOmniboxFullPopup
AimEnabled AvoidCorsURLLoaderRestartOnRedirect AvoidUnnecessaryBeforeUnloadCheckSync DestroyProfileOnBrowserClose
HttpsFirstBalancedModeAutoEnable HttpsUpgrades LensOverlay MediaRouter NetworkTimeServiceQuerying OptimizationHints
PaintHolding PreconnectToSearch ThirdPartyStoragePartitioning"""
CHROMIUM_ARGUMENTS = [
    f"--disable-features={','.join(CHROMIUM_WITHOUT.split())}",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP *.test 127.0.0.1",  # names that are no names of this machine, and lead to it
]

# The machine may be slow: that says nothing about the code.
settings.register_profile("rag-eval", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rag-eval")


def pytest_configure(config: pytest.Config) -> None:
    """Have what servers keep in a place of the tests' own, in place of the user's, for child processes too."""
    import certifi

    state = tempfile.TemporaryDirectory(prefix="rag-eval-state-", ignore_cleanup_errors=True)
    os.environ["XDG_STATE_HOME"] = state.name
    os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # it would call home
    # Every client of HTTP reads all authorities there are, which is most of what a request takes: one is enough here.
    first, end, _ = Path(certifi.where()).read_text(encoding="utf-8").partition("-----END CERTIFICATE-----\n")
    authority = Path(state.name, "authority.pem")
    authority.write_text(first + end, encoding="utf-8")
    os.environ["SSL_CERT_FILE"] = str(authority)
    config.add_cleanup(state.cleanup)
    gc.disable()  # what is imported while tests are collected all stays


def pytest_collection_finish() -> None:
    """Look for garbage as seldom as commands do, and not among what was imported, which is most of what there is."""
    from rag_eval.cli.main import GARBAGE

    gc.freeze()
    gc.set_threshold(*GARBAGE)
    gc.enable()


SLOW = ("tests/cli/", "tests/deployments/", "tests/flows/", "tests/tasks/", "tests/reports/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have the files that take longest come first, so that no worker is left alone with one at the end."""
    items.sort(key=lambda item: next((n for n, folder in enumerate(SLOW) if item.nodeid.startswith(folder)), len(SLOW)))


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A real Prefect server with a database of its own, for the whole session.

    Not Prefect's own test harness, which migrates a new database every time.
    """
    from prefect import context
    from prefect.settings import (
        PREFECT_API_URL,
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
        PREFECT_LOGGING_TO_API_ENABLED,
        temporary_settings,
    )

    from rag_eval.cli.prefect_api import answers
    from rag_eval.cli.processes import ChildProcess
    from tests.cli.commands import free_port, migrated_database, wait_for

    folder = tmp_path_factory.mktemp("prefect")
    database = folder / "prefect.db"
    migrated_database(database)
    port = free_port()
    # Nothing is scheduled there; what happens to tasks and to documents is kept.
    unused = ("CANCELLATION_CLEANUP", "FOREMAN", "LATE_RUNS", "PAUSE_EXPIRATIONS", "SCHEDULER", "TRIGGERS")
    settings = {f"PREFECT_SERVER_SERVICES_{service}_ENABLED": "false" for service in unused} | {
        "PREFECT_HOME": str(folder),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{database}",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    }
    server = ChildProcess("server", ["127.0.0.1", str(port)], folder / "server.log", settings)
    api = f"http://127.0.0.1:{port}/api"
    # Without heartbeats a flow run ends a second sooner; logs that are still to be sent at the end would be tried for
    # a minute.
    quick = {PREFECT_API_URL: api, PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None, PREFECT_LOGGING_TO_API_ENABLED: False}
    try:
        wait_for(lambda: answers(api) or server.poll() is not None, 180)
        # In Prefect's own threads too, which would else start another server.
        with temporary_settings(quick), context._temporary_global_settings_context(context.get_settings_context()):
            yield
    finally:
        server.kill()
        server.wait()


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
