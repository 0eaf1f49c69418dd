import pytest

# By default, pytest rewrites the assertions of test modules only.
pytest.register_assert_rewrite("tests.unit.store.conformance")
