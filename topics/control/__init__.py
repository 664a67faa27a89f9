"""Control records within the event topic: messages and how they are sent."""
