"""`python -m cornserve.cli`: the command line where the script `cornserve` is not on the path."""

from cornserve.cli.commands import main

main()
