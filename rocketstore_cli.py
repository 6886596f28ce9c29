"""Where the command `rocketstore` begins: outside the package, whose import is most of its start. Ctrl-C meanwhile
ends it as quietly as later on."""

__all__ = ["main"]


def main() -> int:
    """The command line; returns its exit code."""
    try:
        from rocketstore.cli import main as command

        return command()
    except KeyboardInterrupt:
        return 130
