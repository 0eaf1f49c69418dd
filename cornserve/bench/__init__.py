"""Measures an app under load: `cornserve bench`.

`requests` creates the requests, and `arrivals` their times. `workload_requests` creates those of a workload:
`workload_chats` with `media_files`, `workload_images` and `workload_speech`.
`recorded_arrivals` has the times of recorded requests, and `server_api` the differences of servers.
`load_generator` sends them, and `timed_client` times each.
`statistics` collects the measurements, `result` summarizes them, and `report` and `live_display` print them.
"""
