"""`python -m hornbook` is the command `hornbook`."""

from hornbook.cli import main

main()
