"""The images of requests.

`images` replaces each `image_url` part of a chat with an `Image`: it decodes a `data:` URL (`data_url`) or fetches an
allowed URL (`fetch`, `ssrf`), and reads the header (`image_header`). Executors decode the pixels, so their bugs do not
affect the gateway. Invalid images raise an `ImageError`.
"""
