"""The families of multimodal models whose encoders can be loaded: one module for each."""
