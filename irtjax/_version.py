"""The version of the installed package."""


def package_version() -> str:
    """The version; "0+unknown" of a source tree that was never installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("irtjax")
    except PackageNotFoundError:
        return "0+unknown"
