"""Deployment: the local stack and its supervisor, images and manifests."""
