"""Executors: the programs that run components of models.

`base` is what every executor shares; each other folder is one executor. An executor's own package
(this one is no exception) registers it under the entry point group `cornserve.executors`.
"""
