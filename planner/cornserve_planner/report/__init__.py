"""The text output and the diagram of a plan."""
