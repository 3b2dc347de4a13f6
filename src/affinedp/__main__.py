"""``python -m affinedp`` is the command line."""

from affinedp.cli import main

if __name__ == "__main__":
    main()
