"""Images that requests bring along or name: from a URL to bytes of which it is known what they are.

A chat's `image_url` part has a URL. `resolve` turns each into an `Image`: it takes the bytes out of a `data:` URL
(`data_url`), or has them fetched (`fetch`) from where that is allowed (`door`), and reads what they say of themselves
(`header`), without decoding a pixel: that is the work of executors, and the decoders' bugs are theirs, too. Whatever is
wrong is an `ImageError`, which the client is told with the place of the part.
"""
