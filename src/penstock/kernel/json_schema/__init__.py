"""JSON Schemas and JSON values from users, within bounds. No other package walks, compiles or applies a schema.

`pointers`: JSON Pointers (RFC 6901) into any JSON value.
`walk`: the parts of a schema, level by level or by the value that they apply to; references are resolved inside the
schema only, and recursive ones end.
`validation`: compiled validators and the violations that they find. Patterns run in linear time, nothing is fetched.
`cost`: the check for schemas that are validated in this process. A schema without it is compiled and applied in the
sandbox only: a recursive one can exhaust the stack or take exponential time.
"""
