"""Language models on stock vLLM.

`executor.py` has the life of the process, `engine.py` vLLM's engine behind the four verbs that the executor needs.
Only `executor.py` and `settings.py` can be imported without paying for vLLM.
"""
