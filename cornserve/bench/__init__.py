"""Measures an app under load: `cornserve bench`.

`requests` creates the requests, `workload_chats` and `media_files` those of a workload, and `arrivals` their times.
`load_generator` sends them, and `timed_client` times each.
`statistics` collects the measurements, `result` summarizes them, and `report` and `live_display` print them.
"""
