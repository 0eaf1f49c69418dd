"""Which requests come, and when: recorded, written down by hand, or generated.

`request` is one of them, `files` how many of them are written down, `classes` what types of requests they are; `gaps`
and `curve` say when they come; `servegen`, `modalities` and `controlled` make them up.
"""
