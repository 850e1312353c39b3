"""HTTP API of access: `routes.py` has keys and the audit log, `users.py` logins and users, `logins.py` runs a login.

It opens the transactions; the verbs of access take one.
"""

from penstock.access.api import routes, users

ROUTERS = (users.router, routes.router)
