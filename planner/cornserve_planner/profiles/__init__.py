"""What deployment options can do on which GPU: published, measured or predicted, and never without saying which.

`figure` is a number with its source, `profile` all of a model's; `gpus` and `architecture` are what predictions rest
on, `roofline` makes them and `accuracy` shows how far off they are; `published` has what papers print beyond profiles.
"""
