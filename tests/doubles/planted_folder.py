"""A folder whose files show when they were executed, or when Prefect took settings from them."""

import json
from pathlib import Path

MODULES = (
    "flows",
    "lancedb",
    "pickle",
    "prefect",
    "psutil",
    "rag_eval",
    "sitecustomize",
    "sqlite3",
    "tasks",
    "tiktoken",
    "usercustomize",
    "uvicorn",
)
NOWHERE = "http://127.0.0.1:9/api"


def plant(folder: Path, canaries: Path) -> None:
    """Put modules and settings of Prefect into a folder; each that is obeyed makes a file among the canaries."""
    canaries.mkdir()
    for name in MODULES:
        (folder / f"{name}.py").write_text(f"open({str(canaries / name)!r}, 'w').close()\n")
    logging = {}
    for source in ("env", "prefect", "pyproject", "profile"):
        handler = {"()": "subprocess.getoutput", "cmd": f"touch '{canaries / source}'"}
        logging[source] = folder / f"{source}-logging.yml"
        logging[source].write_text(json.dumps({"version": 1, "handlers": {"canary": handler}}))
    profile = f'PREFECT_API_URL = "{NOWHERE}"\nPREFECT_LOGGING_SETTINGS_PATH = "{logging["profile"]}"\n'
    (folder / "profiles.toml").write_text(f'active = "planted"\n[profiles.planted]\n{profile}')
    profiles = f'profiles_path = "{folder / "profiles.toml"}"\n'
    (folder / ".env").write_text(f"PREFECT_API_URL={NOWHERE}\nPREFECT_LOGGING_SETTINGS_PATH={logging['env']}\n")
    tables = '[{0}api]\nurl = "{1}"\n[{0}logging]\nconfig_path = "{2}"\n'
    (folder / "prefect.toml").write_text(profiles + tables.format("", NOWHERE, logging["prefect"]))
    own = tables.format("tool.prefect.", NOWHERE, logging["pyproject"])
    (folder / "pyproject.toml").write_text(f"[tool.prefect]\n{profiles}{own}")


def obeyed(canaries: Path) -> set[str]:
    """Return which modules and settings were obeyed."""
    return {path.name for path in canaries.iterdir()}
