"""``rag-eval truth``: get ground truth, check it, review it and keep it true.

Each command has a file of its own, ``truth_*.py``, and is registered here; heavy imports stay inside the functions.
"""

import typer

from flows.cli.truth_check import check
from flows.cli.truth_import import import_
from flows.cli.truth_pull import pull
from flows.cli.truth_push import push
from flows.cli.truth_reanchor import reanchor
from flows.cli.truth_review import review

app = typer.Typer(help="Get ground truth, check it, review it and keep it true.", no_args_is_help=True)
app.command("import")(import_)
app.command("check")(check)
app.command("review")(review)
app.command("reanchor")(reanchor)
app.command("push")(push)
app.command("pull")(pull)
