"""Workloads: the requests to serve and their arrival times, recorded, written by hand, or generated.

`request` defines a request, `request_files` reads and writes files of requests, and `request_types` classifies them.
`interarrival` and `rate_curve` model arrival times. `servegen`, `added_modalities` and `controlled` generate requests.
"""
