"""Mixed-integer linear programs and their solvers.

`optimization` plans without topology: it solves `milp` within a `budget`, and `infeasible` explains failures.
`cells` plans for 1, 2, 4, … GPUs and mixes the results, `strategies` are fixed plans, and `explanation` names limits.
All use `solver`.
"""
