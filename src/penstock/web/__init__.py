"""The web app: the routes of all modules, health checks, and the server."""
