"""Decoding of media files, independent of the model."""
