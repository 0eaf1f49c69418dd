"""Between torch and the data plane, which knows bytes, dtypes and shapes."""
