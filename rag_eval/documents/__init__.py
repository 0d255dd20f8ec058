"""Documents: loading them from files of several formats, and watching a folder for changes."""

SUFFIXES = {
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".docx": "docx",
    ".ipynb": "notebook",
    ".pdf": "pdf",
}
"""The loader of a file by its suffix."""

FILE_DIGEST, PLACES = "file_sha256", "places"
"""In the metadata of a document that a loader read: the sha256 of its file, and where its pages or cells begin."""
