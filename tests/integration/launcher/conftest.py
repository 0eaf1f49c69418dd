import pytest

# pytest rewrites the assertions of test modules only, unless it is told of others.
pytest.register_assert_rewrite("tests.integration.launcher.conformance")
