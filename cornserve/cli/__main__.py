"""`python -m cornserve.cli`: the command line without the script `cornserve`."""

from cornserve.cli.commands import main

main()
