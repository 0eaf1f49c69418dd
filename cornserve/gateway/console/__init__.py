"""The web console: its files, its sessions, and the requests of signed-in browsers."""
