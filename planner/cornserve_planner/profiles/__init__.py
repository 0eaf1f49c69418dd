"""Performance of deployment options on GPUs: published, measured or predicted. Every value states its source.

`sourced_value` defines a value with its source, and `profile` the profile of a model. `roofline` makes predictions from
`gpus` and `architecture`, and `accuracy` compares them with published values.
"""
