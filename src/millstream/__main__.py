"""`python -m millstream` is the program `millstream`."""

from millstream.cli.app import main

if __name__ == "__main__":
    main()
