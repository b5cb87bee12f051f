"""The `irtjax` command, also as `python -m irtjax`."""


def main() -> None:
    """Runs the command; Ctrl-C before it begins ends in one line, too."""
    try:
        from irtjax.cli import main as run

        run()
    except KeyboardInterrupt:
        # The process has nothing to end, and another Ctrl-C nothing to interrupt.
        import os

        os.write(2, b"irtjax: interrupted\n")
        os._exit(130)


if __name__ == "__main__":
    main()
