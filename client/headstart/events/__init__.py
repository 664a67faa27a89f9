"""The events: types, constructors, validation, frames."""
