"""The web app: routes of all rooms, the health of the house, and the server that serves them."""
