"""The data plane: tensors go from the executor that makes them to the one that needs them."""
