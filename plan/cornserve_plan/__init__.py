"""The plan: replicas in cells, and the probabilities of paths [C §4.3]. Planner, apps, gateway and client share it."""
