"""The plan file: everything that deploying, adapting and checking a plan needs."""
