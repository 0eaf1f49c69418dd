"""Plans for goodput: candidates are simulated with the requests of a workload, and the best one wins [T §4.4]."""
