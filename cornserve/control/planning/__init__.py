"""Planning of apps: the first plan of an app, and the process that makes plans."""
