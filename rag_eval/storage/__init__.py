"""Where a workspace is kept: in a folder, or in a bucket with a folder as its copy on this machine."""
