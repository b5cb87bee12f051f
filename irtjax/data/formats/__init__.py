"""One module per log format, each with ``read_files(paths, options)``."""
