"""Files that users write: reading them within limits, checking their format, and the files that commands write."""
