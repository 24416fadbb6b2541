"""`python -m rota` is `rota`."""

from .surfaces.cli import main

if __name__ == "__main__":
    main()
