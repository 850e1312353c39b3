"""The commands of the etl room, and how the demo's samples were drawn."""
