"""Every message that may pass from one room to another: the map of the house.

There are no rooms yet, so nothing is said yet. A message is a frozen dataclass derived from
`penstock.kernel.message.Message`; `wiring.ROUTES` says which handler hears it.
"""
