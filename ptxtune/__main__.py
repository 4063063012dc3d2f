"""python -m ptxtune: the same as the ptxtune command."""

from ptxtune.cli import main

if __name__ == "__main__":
    main()
