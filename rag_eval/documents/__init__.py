"""Documents: loading them from files of several formats, and watching a folder for changes."""

LOADERS = {
    "html": ("rag_eval.documents.loaders:HtmlLoader", (".html", ".htm", ".xhtml")),
    "docx": ("rag_eval.documents.loaders:DocxLoader", (".docx",)),
    "notebook": ("rag_eval.documents.loaders:NotebookLoader", (".ipynb",)),
    "pdf": ("rag_eval.documents.pdf:PdfLoader", (".pdf",)),
}
"""The built-in loaders by name: where each is, and the suffixes of the files that it reads unless others are set."""

SUFFIXES = {suffix: name for name, (_, suffixes) in LOADERS.items() for suffix in suffixes}
"""The loader of a file by its suffix."""

FILE_DIGEST, PLACES = "file_sha256", "places"
"""In the metadata of a document that a loader read: the sha256 of its file, and where its pages or cells begin."""
