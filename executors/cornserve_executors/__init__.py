"""Executors: the programs that run components of models.

`base` is shared by all executors. A package, such as this one, registers its executors in the entry point group
`cornserve.executors`.
"""
