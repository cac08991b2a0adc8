"""Data that the library ships: the small trained model, recorded measurements."""
