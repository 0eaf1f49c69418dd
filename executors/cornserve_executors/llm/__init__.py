"""Language models on stock vLLM.

`executor.py` has the life of the process, `engine.py` vLLM's engine behind the one verb that the executor adds.
Only `executor.py` can be imported without paying for vLLM.
"""
