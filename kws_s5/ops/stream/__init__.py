"""The next frames of streams through packed layers."""
