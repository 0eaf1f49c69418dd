"""What else stands between clients and engines: proxies to measure the gateway beside, and the engine behind them.

They only pass on: none but vllm-router keeps metrics or watches its engine, none checks a field, records or replays.
`install` gets what is no part of Cornserve's own environment.
"""
