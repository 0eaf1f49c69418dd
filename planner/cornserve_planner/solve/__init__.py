"""Mixed-integer linear programs and their solvers.

`milp` plans without topology: it solves `milp_program` within a `budget`, and `infeasible` explains failures.
`topology` plans for a `cluster`, and solves `placement_program`. Both use `solver`.
"""
