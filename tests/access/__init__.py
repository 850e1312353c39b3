"""Who is calling, tried on both databases and through the app's own door."""
