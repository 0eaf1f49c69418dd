"""Other proxies between clients and engines, which a benchmark compares with the gateway, and their engine.

They only forward requests. They do not validate, record or replay; only vllm-router has metrics and health checks.
`install` installs those that are not part of Cornserve's environment.
"""
