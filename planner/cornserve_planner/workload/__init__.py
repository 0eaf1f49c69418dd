"""Workloads: the requests to serve and their arrival times, recorded, written by hand, or generated.

`document` describes a workload, and `request_files` reads and writes files of requests.
`interarrival` and `rate_curve` model arrival times. `servegen`, `added_modalities` and `controlled` generate requests.
"""
