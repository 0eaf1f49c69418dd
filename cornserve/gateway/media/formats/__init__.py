"""The formats of images, one each."""
