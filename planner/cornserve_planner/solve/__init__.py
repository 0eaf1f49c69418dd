"""Mixed-integer linear programs and their solvers.

`optimization` plans without topology: it solves `milp_program` within a `budget`, and `infeasible` explains failures.
`placement` plans for a `cluster`, and solves `placement_program`. Both use `solver`.
"""
