"""Measures an app under load: `cornserve bench`.

`arrivals` says when requests are sent, `requests` what, `load` sends them, `exchange` is one of them; `samples` is what
was seen of each, `result` what follows from all, `report` and `live` show it.
"""
