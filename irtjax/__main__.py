"""Lets `python -m irtjax` run the command line."""

from irtjax.cli import main

if __name__ == "__main__":
    main()
