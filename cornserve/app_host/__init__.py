"""App hosts: processes that import and run the code of one version of an app each."""
