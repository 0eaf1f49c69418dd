"""Generated from proto/cornserve/v1 by proto/generate."""
