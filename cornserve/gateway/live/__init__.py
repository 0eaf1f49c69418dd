"""The live figures of all gateways, which the console and the command line show."""
