"""`python -m gpuconsole`."""

from gpuconsole.cli import main

if __name__ == "__main__":
    main()
