"""The command line: thin, one file for each group of commands."""


def main() -> None:
    """Run the command line."""
    from affinedp.cli.app import main as run

    run()
