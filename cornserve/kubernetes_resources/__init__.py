"""The custom resources `App` and `AppRoute`: their models, CRDs, and conversion from and to the stored records."""
