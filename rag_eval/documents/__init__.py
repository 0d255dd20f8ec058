"""Load documents from files of several formats, and watch folders for changes."""

LOADERS = {
    "html": ("rag_eval.documents.loaders:HtmlLoader", (".html", ".htm", ".xhtml")),
    "docx": ("rag_eval.documents.loaders:DocxLoader", (".docx",)),
    "notebook": ("rag_eval.documents.loaders:NotebookLoader", (".ipynb",)),
    "pdf": ("rag_eval.documents.pdf:PdfLoader", (".pdf",)),
}
"""The built-in loaders by name: where each is, and which suffixes it reads by default."""

SUFFIXES = {suffix: name for name, (_, suffixes) in LOADERS.items() for suffix in suffixes}
"""The name of the loader for each suffix."""

FILE_DIGEST, PLACES = "file_sha256", "places"
"""Metadata keys of loaded documents: the SHA-256 of the file, and the offsets of its pages or cells."""
