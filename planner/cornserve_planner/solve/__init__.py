"""The mixed-integer linear programs, and how they are solved.

`milp` plans without topology: `program` is what it solves, within a `budget`, and `infeasible` says why it cannot.
`topology` plans for a `cluster`, and solves `placed_program`. Both run on an `engine`.
"""
