"""Mixed-integer linear programs and their solvers.

`optimization` plans without topology: it solves `milp` within a `budget`, and `infeasible` explains failures.
`placement` plans for a `cluster`, and solves `topology_milp`. Both use `solver`.
"""
