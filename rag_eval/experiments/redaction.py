"""Keys out of what is recorded: errors of tasks and evaluators, and the explanations of scores."""

import os
import re

SHORTEST_SECRET = 8
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
# A key that was given in code: after "Bearer", or with the beginning that a vendor gives its keys.
_KEY = re.compile(r"(?<=Bearer )[\w.~+/-]{8,}=*|\b(?:sk|pk|rk|ghp|lsv2|hf|xox[abp])[-_][\w-]{12,}", re.IGNORECASE)


def recordable(text: str) -> str:
    """The text without what the environment holds as a key, without what looks like one, and as UTF-8 can hold it."""
    secrets = [(value, name) for name, value in os.environ.items() if _SECRET_NAME.search(name)]
    for value, name in sorted(secrets, key=lambda pair: -len(pair[0])):  # one key may be the beginning of another
        if len(value) >= SHORTEST_SECRET:
            text = text.replace(value, f"<{name}>")
    return _KEY.sub("<key>", text).encode("utf-8", "replace").decode()
