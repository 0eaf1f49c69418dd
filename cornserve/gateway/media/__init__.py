"""The media of requests.

`media_loader` replaces each part of a chat that contains an image, audio or a video with an inspected one: it decodes a
`data:` URL (`data_url`) or fetches an allowed URL (`fetch`, `ssrf`), and reads the header (`image_header`,
`audio_header`, `video_header`). Executors decode the files, so bugs of decoders do not affect the gateway. Invalid
media raise a `MediaError`.
"""
