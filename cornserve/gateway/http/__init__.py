"""The way in: connections, who may call, how much is taken at once, how bodies arrive."""
