"""`python -m app` is the command line, for where the console script is not on the path."""

from app.cli import main

if __name__ == "__main__":
    main()
