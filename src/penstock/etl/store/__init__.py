"""Tables of the etl module and every SQL statement on them, one file per noun."""
